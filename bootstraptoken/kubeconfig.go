package bootstraptoken

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nodeattest/nodeattest/refusal"
)

// The reasons why a kubeconfig is refused as a discovery document, in addition to the checks
// of its server and CAs.
const (
	// checkKubeconfig: not one strict YAML or JSON document of at most
	// 262,144 bytes with the members of a kubeconfig.
	checkKubeconfig Check = "kubeconfig"
	// checkCluster: not exactly one cluster, or one whose name is not that of the current
	// context's cluster.
	checkCluster Check = "kubeconfig-cluster"
	// checkCredentials: there are credentials: a user with any member, or a user in a URL. None
	// of their values is in the error.
	checkCredentials Check = "kubeconfig-credentials"
	// checkInsecureSkipTLSVerify: insecure-skip-tls-verify is set.
	checkInsecureSkipTLSVerify Check = "kubeconfig-insecure-skip-tls-verify"
	// checkProxy: proxy-url is set. The document's writer must not choose who sees the
	// node's traffic.
	checkProxy Check = "kubeconfig-proxy-url"
	// checkTLSServerName: tls-server-name is set. kubeadm silently drops it.
	checkTLSServerName Check = "kubeconfig-tls-server-name"
	// checkCAFile: certificate-authority is set: a path, which means nothing on
	// another machine.
	checkCAFile Check = "kubeconfig-ca-file"
)

// ParseKubeconfig reads a discovery document: a kubeconfig in YAML or JSON with one
// cluster and no credentials (Kubernetes bootstrap discovery, "Cluster location
// information"; k8s.io/client-go/tools/clientcmd/api/v1, types.go).
//
// The cluster is unnamed, as in the cluster-info ConfigMap, or it is the one of the current
// context, as in a file that kubeadm accepts (cmd/kubeadm/app/util/kubeconfig,
// GetClusterFromKubeConfig); a second cluster is refused. kubeadm keeps the server and the CAs
// and ignores everything else. Here, members that change how a client connects, and
// credentials of every kind, are refused by their own checks, and unknown members by
// "kubeconfig". Users without members, contexts, and known members with the empty value
// of their type are harmless and ignored.
//
// Whatever is accepted, clientcmd reads in the same way: words that are text in YAML 1.2 but
// not in YAML 1.1, such as yes, need quotes. Errors give the position in the document, and
// repeat nothing from it except the version and the names that are compared.
//
// Errors are the checks of this file, "server-url", "server-url-scheme" and "ca-bundle".
func ParseKubeconfig(data []byte) (*ClusterInfo, error) {
	if len(data) > maxKubeconfigSize {
		return nil, errKubeconfigSize(len(data))
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("<")) {
		return nil, &Error{Check: checkKubeconfig, Got: "a web page or XML", Want: "a kubeconfig in YAML or JSON"}
	}
	root, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	k := kubeconfig{contexts: map[string]string{}}
	if err := k.read(root); err != nil {
		return nil, err
	}
	return k.clusterInfo()
}

// kubeconfig holds the contents of one.
type kubeconfig struct {
	apiVersion, kind string
	current          string
	contexts         map[string]string // cluster names by context name
	clusters         []namedCluster
}

type namedCluster struct {
	name string
	has  bool // a member "cluster"
	info ClusterInfo
}

func (k *kubeconfig) clusterInfo() (*ClusterInfo, error) {
	if k.apiVersion != "v1" || k.kind != "Config" {
		return nil, &Error{Check: checkKubeconfig, Got: refusal.Quote(k.apiVersion) + " " + refusal.Quote(k.kind), Want: `"v1" "Config"`}
	}
	if len(k.clusters) != 1 || !k.clusters[0].has {
		return nil, &Error{Check: checkCluster, Got: strconv.Itoa(len(k.clusters)) + " clusters", Want: "one"}
	}
	c := k.clusters[0]
	if c.name != "" {
		if cluster := k.contexts[k.current]; cluster != c.name {
			return nil, &Error{Check: checkCluster, Got: "a current context of the cluster " + refusal.Quote(cluster), Want: "an unnamed cluster, or the context of " + refusal.Quote(c.name)}
		}
	}
	if _, err := parseServer(c.info.Server); err != nil {
		return nil, err
	}
	c.info.SystemRoots = len(c.info.CAs) == 0
	return &c.info, nil
}

func (k *kubeconfig) read(root *yaml.Node) error {
	return members{
		"apiVersion":      text(&k.apiVersion),
		"kind":            text(&k.kind),
		"clusters":        list(k.readCluster),
		"contexts":        list(k.readContext),
		"users":           list(readUser),
		"current-context": orNull(text(&k.current)),
		"preferences":     empty("!!map", checkKubeconfig),
		"extensions":      empty("!!seq", checkKubeconfig),
	}.read(root)
}

func (k *kubeconfig) readCluster(n *yaml.Node) error {
	var c namedCluster
	cluster := members{
		"server":                     text(&c.info.Server),
		"certificate-authority-data": c.readCAs,
		"certificate-authority":      empty("!!str", checkCAFile),
		"insecure-skip-tls-verify":   empty("!!bool", checkInsecureSkipTLSVerify),
		"proxy-url":                  empty("!!str", checkProxy),
		"tls-server-name":            empty("!!str", checkTLSServerName),
		"disable-compression":        empty("!!bool", checkKubeconfig),
		"extensions":                 empty("!!seq", checkKubeconfig),
	}
	err := members{"name": text(&c.name), "cluster": func(n *yaml.Node) error {
		c.has = true
		return cluster.read(n)
	}}.read(n)
	k.clusters = append(k.clusters, c)
	return err
}

// readCAs reads canonical base64 with padding and without line ends, which the decoder would ignore.
func (c *namedCluster) readCAs(n *yaml.Node) error {
	var encoded string
	if err := text(&encoded)(n); err != nil {
		return err
	}
	bundle, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return fail(n, checkCA, "certificate-authority-data that is not base64 in one line", "one line of base64, without spaces and with its padding")
	}
	c.info.CAs, err = ParseCAs(bundle)
	return err
}

func (k *kubeconfig) readContext(n *yaml.Node) error {
	var name, cluster, other string
	context := members{
		"cluster":    text(&cluster),
		"user":       text(&other),
		"namespace":  text(&other),
		"extensions": empty("!!seq", checkKubeconfig),
	}
	if err := (members{"name": text(&name), "context": context.read}).read(n); err != nil {
		return err
	}
	if _, twice := k.contexts[name]; twice {
		return &Error{Check: checkCluster, Got: "two contexts " + refusal.Quote(name), Want: "one"}
	}
	k.contexts[name] = cluster
	return nil
}

// readUser refuses a user that has anything but a name: a token, a password, a client
// certificate, a command to run, a user to impersonate.
func readUser(n *yaml.Node) error {
	return eachMember(n, func(member string, value *yaml.Node) error {
		switch {
		case member == "name":
			return text(new(string))(value)
		case member == "user" && empty("!!map", checkCredentials)(value) == nil:
			return nil
		}
		return fail(value, checkCredentials, "a user with more than a name", "no users")
	})
}
