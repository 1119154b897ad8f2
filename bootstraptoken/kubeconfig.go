package bootstraptoken

import (
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// The reasons why a kubeconfig is refused as a discovery document, in addition to those of its
// server and CAs.
const (
	// CheckKubeconfig: not one strict YAML or JSON document of at most
	// [MaxKubeconfigSize] bytes with the members of a kubeconfig.
	CheckKubeconfig Check = "kubeconfig"
	// CheckCluster: not exactly one cluster, or one whose name is not that of the current
	// context's cluster.
	CheckCluster Check = "kubeconfig-cluster"
	// CheckCredentials: there are credentials: a user with any member, or a user in a URL. None
	// of their values is in the error.
	CheckCredentials Check = "kubeconfig-credentials"
	// CheckInsecureSkipTLSVerify: insecure-skip-tls-verify is set.
	CheckInsecureSkipTLSVerify Check = "kubeconfig-insecure-skip-tls-verify"
	// CheckProxy: proxy-url is set. Whoever can write the document must not choose who sees the
	// node's traffic.
	CheckProxy Check = "kubeconfig-proxy-url"
	// CheckTLSServerName: tls-server-name is set. kubeadm silently drops it.
	CheckTLSServerName Check = "kubeconfig-tls-server-name"
	// CheckCAFile: certificate-authority is set: a path, which means nothing on
	// another machine.
	CheckCAFile Check = "kubeconfig-ca-file"
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
// [CheckKubeconfig]. Users without members, contexts, and known members with the empty value
// of their type are harmless and ignored.
//
// Whatever is accepted, clientcmd reads in the same way: words that are text in YAML 1.2 but
// not in YAML 1.1, such as yes, need quotes. Errors give the position in the document, and
// repeat nothing from it except the version and the names that are compared.
//
// Errors are the checks of this file, [CheckServer], [CheckServerScheme] and [CheckCA].
func ParseKubeconfig(data []byte) (*ClusterInfo, error) {
	if len(data) > MaxKubeconfigSize {
		return nil, errKubeconfigSize(len(data))
	}
	root, err := parseYAML(data, CheckKubeconfig)
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
		return nil, &Error{Check: CheckKubeconfig, Got: refusal.Quote(k.apiVersion) + " " + refusal.Quote(k.kind), Want: `"v1" "Config"`}
	}
	if len(k.clusters) != 1 || !k.clusters[0].has {
		return nil, &Error{Check: CheckCluster, Got: strconv.Itoa(len(k.clusters)) + " clusters", Want: "one"}
	}
	c := k.clusters[0]
	if c.name != "" {
		if cluster := k.contexts[k.current]; cluster != c.name {
			return nil, &Error{Check: CheckCluster, Got: "a current context of the cluster " + refusal.Quote(cluster), Want: "an unnamed cluster, or the context of " + refusal.Quote(c.name)}
		}
	}
	if _, err := parseServer(c.info.Server); err != nil {
		return nil, err
	}
	c.info.SystemRoots = len(c.info.CAs) == 0
	return &c.info, nil
}

func (k *kubeconfig) read(root yamlValue) error {
	return members{
		"apiVersion":      text(&k.apiVersion),
		"kind":            text(&k.kind),
		"clusters":        list(k.readCluster),
		"contexts":        list(k.readContext),
		"users":           list(readUser),
		"current-context": orNull(text(&k.current)),
		"preferences":     empty("!!map", CheckKubeconfig),
		"extensions":      empty("!!seq", CheckKubeconfig),
	}.read(root)
}

func (k *kubeconfig) readCluster(v yamlValue) error {
	var c namedCluster
	cluster := members{
		"server":                     text(&c.info.Server),
		"certificate-authority-data": c.readCAs,
		"certificate-authority":      empty("!!str", CheckCAFile),
		"insecure-skip-tls-verify":   empty("!!bool", CheckInsecureSkipTLSVerify),
		"proxy-url":                  empty("!!str", CheckProxy),
		"tls-server-name":            empty("!!str", CheckTLSServerName),
		"disable-compression":        empty("!!bool", CheckKubeconfig),
		"extensions":                 empty("!!seq", CheckKubeconfig),
	}
	err := members{"name": text(&c.name), "cluster": func(v yamlValue) error {
		c.has = true
		return cluster.read(v)
	}}.read(v)
	k.clusters = append(k.clusters, c)
	return err
}

func (c *namedCluster) readCAs(v yamlValue) error {
	var encoded string
	if err := text(&encoded)(v); err != nil {
		return err
	}
	bundle, err := decodeBase64(encoded)
	if err != nil {
		return caError("", err)
	}
	c.info.CAs, err = ParseCAs(bundle)
	return err
}

func (k *kubeconfig) readContext(v yamlValue) error {
	var name, cluster, other string
	context := members{
		"cluster":    text(&cluster),
		"user":       text(&other),
		"namespace":  text(&other),
		"extensions": empty("!!seq", CheckKubeconfig),
	}
	if err := (members{"name": text(&name), "context": context.read}).read(v); err != nil {
		return err
	}
	if _, twice := k.contexts[name]; twice {
		return &Error{Check: CheckCluster, Got: "two contexts " + refusal.Quote(name), Want: "one"}
	}
	k.contexts[name] = cluster
	return nil
}

// readUser refuses a user that has anything but a name: a token, a password, a client
// certificate, a command to run, somebody to impersonate.
func readUser(v yamlValue) error {
	return v.members(func(member string, v yamlValue) error {
		switch {
		case member == "name":
			return text(new(string))(v)
		case member == "user" && empty("!!map", CheckCredentials)(v) == nil:
			return nil
		}
		v.check = CheckCredentials
		return v.fail("a user with more than a name", "no users")
	})
}
