package bootstraptoken

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// ClusterInfo is the address of a cluster's API server, and the CAs that identify it (Kubernetes
// bootstrap discovery, "Cluster location information"). It travels as a kubeconfig with one
// unnamed cluster and no credentials. The zero ClusterInfo is refused everywhere.
type ClusterInfo struct {
	// Server is the API server's URL, https://host[:port][/path].
	Server string
	// CAs are the CA certificates that the API server's certificate must chain to, 1
	// to 64 in the order of the document; several while they are being rotated.
	CAs []*x509.Certificate
	// SystemRoots is set, and CAs is empty, if the kubeconfig has no CA bundle: then the roots
	// that the system trusts are meant (Kubernetes bootstrap discovery, "Evolving kubeconfig").
	// It comes only from files, standard input and HTTPS: discovery by token
	// needs CAs, and so does a refresh of a document that had them.
	SystemRoots bool
}

// Marshal writes the kubeconfig of the cluster, byte for byte as kubeadm writes it into the
// cluster-info ConfigMap (k8s.io/client-go/tools/clientcmd 0.36, Write, of one unnamed
// cluster). [ParseKubeconfig] reads back the same value. The error is "server-url",
// "server-url-scheme", "kubeconfig-credentials", "ca-bundle" or "no-ca".
func (c *ClusterInfo) Marshal() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	authority := ""
	if !c.SystemRoots {
		bundle, err := marshalCAs(c.CAs)
		if err != nil {
			return nil, err
		}
		authority = "    certificate-authority-data: " + base64.StdEncoding.EncodeToString(bundle) + "\n"
	}
	return []byte("apiVersion: v1\nclusters:\n- cluster:\n" + authority + "    server: " + c.Server +
		"\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n"), nil
}

// Roots returns the certificates that the API server's certificate must chain to: the
// CAs, or the system's roots if SystemRoots is set. It is never nil without an error,
// since a nil pool means the system's roots to crypto/tls. The error is "no-ca".
func (c *ClusterInfo) Roots() (*x509.CertPool, error) {
	if err := c.checkCAs(); err != nil {
		return nil, err
	}
	if c.SystemRoots {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, &Error{Check: checkNoCA, Got: "no system roots", Err: err}
		}
		return roots, nil
	}
	if _, err := marshalCAs(c.CAs); err != nil {
		return nil, err
	}
	return poolOf(c.CAs), nil
}

// Pins returns the pins of the CAs, in order. A joining node is given them with its token.
func (c *ClusterInfo) Pins() []Pin {
	pins := make([]Pin, 0, len(c.CAs))
	for _, ca := range c.CAs {
		pins = append(pins, pinOf(ca))
	}
	return pins
}

// Equal reports whether both are the same cluster information, with the CAs in the same order.
func (c *ClusterInfo) Equal(other *ClusterInfo) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.Server == other.Server && c.SystemRoots == other.SystemRoots &&
		slices.EqualFunc(c.CAs, other.CAs, (*x509.Certificate).Equal)
}

func (c *ClusterInfo) check() error {
	if c == nil {
		return &Error{Check: checkServer, Got: "no ClusterInfo", Want: wantServer}
	}
	if _, err := parseServer(c.Server); err != nil {
		return err
	}
	return c.checkCAs()
}

func (c *ClusterInfo) checkCAs() error {
	switch {
	case c == nil || len(c.CAs) == 0 && !c.SystemRoots:
		return &Error{Check: checkNoCA, Got: "no CAs", Want: "CAs, or SystemRoots"}
	case len(c.CAs) > 0 && c.SystemRoots:
		return &Error{Check: checkNoCA, Got: "CAs and SystemRoots", Want: "one of them"}
	}
	return nil
}

func poolOf(cas []*x509.Certificate) *x509.CertPool {
	roots := x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	return roots
}

// The ConfigMap that describes a cluster to anyone who asks (Kubernetes bootstrap discovery,
// "cluster-info ConfigMap"; k8s.io/cluster-bootstrap/token/api, types.go).
const (
	// ClusterInfoNamespace and ClusterInfoName say where it is.
	ClusterInfoNamespace = "kube-public"
	ClusterInfoName      = "cluster-info"
	// KubeconfigKey is the key in its data that holds the kubeconfig.
	KubeconfigKey = "kubeconfig"
	// SignatureKeyPrefix followed by a token's ID is the key of the kubeconfig's signature by
	// that token.
	SignatureKeyPrefix = "jws-kubeconfig-"
)

// The reasons why the data of a cluster-info ConfigMap is not signed, or not trusted.
const (
	// checkNoKubeconfig: there is no kubeconfig, or it is empty.
	checkNoKubeconfig Check = "cluster-info-kubeconfig"
	// checkNoSignature: there is no signature by the token. The bootstrap signer adds it a
	// moment after the token is made, so [Discover] waits for it.
	checkNoSignature Check = "cluster-info-no-signature"
	// CheckSignature: the signature is not one by the token over this kubeconfig.
	CheckSignature Check = "cluster-info-signature"
	// checkDuplicateToken: two different tokens have the same ID.
	checkDuplicateToken Check = "duplicate-token"
)

// Data returns the data of a new cluster-info ConfigMap, not yet signed. Its errors are from
// [ClusterInfo.Marshal].
func (c *ClusterInfo) Data() (map[string]string, error) {
	kubeconfig, err := c.Marshal()
	if err != nil {
		return nil, err
	}
	return map[string]string{KubeconfigKey: string(kubeconfig)}, nil
}

// VerifyClusterInfo reads the cluster from the data of a cluster-info ConfigMap if the token signed it.
// Every holder of the token can sign, so the CAs are to be compared with pins too, as [Discover] does;
// an operator asks with it whether nodes with this token will find the cluster. Whether the token is valid
// now is not asked. The error is "cluster-info-no-signature", [CheckSignature], "cluster-info-kubeconfig",
// "bootstrap-token" for the zero Token, or from [ParseKubeconfig].
func VerifyClusterInfo(data map[string]string, token Token) (*ClusterInfo, error) {
	kubeconfig, err := signedKubeconfig(data, token)
	if err != nil {
		return nil, err
	}
	return ParseKubeconfig([]byte(kubeconfig))
}

// signedKubeconfig returns the kubeconfig in the data of a cluster-info ConfigMap if the token
// signed it. Anyone who has the token can sign: its CAs are compared with pins, too.
func signedKubeconfig(data map[string]string, token Token) (string, error) {
	if token.IsZero() {
		return "", &Error{Check: checkToken, Got: token.String(), Want: wantToken}
	}
	kubeconfig, err := kubeconfigOf(data)
	if err != nil {
		return "", err
	}
	signature := data[SignatureKeyPrefix+token.ID()]
	if signature == "" {
		return "", &Error{Check: checkNoSignature, Want: SignatureKeyPrefix + token.ID()}
	}
	payload, err := jws.NewDetached([]byte(kubeconfig))
	if err == nil {
		err = payload.Verify(signature, token.ID(), token.key())
	}
	if err != nil {
		return "", &Error{Check: CheckSignature, Err: err}
	}
	return kubeconfig, nil
}

func kubeconfigOf(data map[string]string) (string, error) {
	kubeconfig := data[KubeconfigKey]
	switch {
	case kubeconfig == "":
		return "", &Error{Check: checkNoKubeconfig, Want: "the key " + KubeconfigKey}
	case len(kubeconfig) > maxKubeconfigSize:
		return "", errKubeconfigSize(len(kubeconfig))
	}
	return kubeconfig, nil
}

func errKubeconfigSize(got int) error {
	return &Error{Check: checkKubeconfig, Got: strconv.Itoa(got) + " bytes", Want: "1 to " + strconv.Itoa(maxKubeconfigSize)}
}

// parseConfigMap reads the cluster-info ConfigMap as the API server serves it in JSON and
// returns its data, nil if it has none. It must be a v1 ConfigMap with the name
// [ClusterInfoName] in the namespace [ClusterInfoNamespace], of at most 2,097,152
// bytes. Unknown members are ignored: Kubernetes adds some. Duplicate members, even in
// different case, are refused. YAML is not read. The error is "cluster-info-object".
func parseConfigMap(object []byte) (map[string]string, error) {
	if len(object) > maxConfigMapSize {
		return nil, &Error{Check: checkConfigMap, Got: strconv.Itoa(len(object)) + " bytes", Want: "at most " + strconv.Itoa(maxConfigMapSize)}
	}
	var apiVersion, kind, namespace, name string
	var data map[string]string
	metadata := strictjson.Fields{"namespace": strictjson.Into(&namespace), "name": strictjson.Into(&name)}
	err := strictjson.Fields{
		"apiVersion": strictjson.Into(&apiVersion),
		"kind":       strictjson.Into(&kind),
		"metadata":   metadata.Read,
		"data": func(r *strictjson.Reader) (err error) {
			if r.Type() == strictjson.NullType {
				return r.Null()
			}
			data, err = r.Texts()
			return err
		},
	}.Parse(object)
	if err != nil {
		return nil, notJSON(object, err)
	}
	if apiVersion != "v1" || kind != "ConfigMap" {
		return nil, &Error{Check: checkConfigMap, Got: refusal.Quote(apiVersion) + " " + refusal.Quote(kind), Want: `"v1" "ConfigMap"`}
	}
	if namespace != ClusterInfoNamespace || name != ClusterInfoName {
		return nil, &Error{Check: checkConfigMap, Got: refusal.Quote(namespace) + " " + refusal.Quote(name),
			Want: strconv.Quote(ClusterInfoNamespace) + " " + strconv.Quote(ClusterInfoName)}
	}
	return data, nil
}

// notJSON says that a text is not JSON if it does not even begin like an object.
func notJSON(object []byte, err error) error {
	begin := bytes.TrimLeft(object, " \t\r\n")
	if !errors.Is(err, strictjson.ErrPage) && (len(begin) == 0 || begin[0] != '{') {
		return &Error{Check: checkConfigMap, Got: "a text that is not JSON, as YAML is not", Want: "a ConfigMap in JSON, as kubectl get -o json prints it"}
	}
	return &Error{Check: checkConfigMap, Err: err}
}
