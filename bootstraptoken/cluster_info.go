package bootstraptoken

import (
	"crypto/x509"
	"encoding/base64"
	"slices"
)

// MaxKubeconfigSize is the size in bytes of the largest discovery document.
const MaxKubeconfigSize = 256 << 10

// CheckNoCA: there is no CA certificate where one is needed.
const CheckNoCA Check = "no-ca"

// ClusterInfo is what one must know of a cluster to speak to it: where its API server is
// and by which CAs to know it (Kubernetes bootstrap discovery, "Cluster location
// information"). It travels as a kubeconfig with one unnamed cluster and no credentials.
// The zero ClusterInfo is refused everywhere.
type ClusterInfo struct {
	// Server is the API server's URL, https://host[:port][/path].
	Server string
	// CAs are the CA certificates that the API server's certificate must chain to, 1
	// to [MaxCAs] in the order of the document; several while they are being rotated.
	CAs []*x509.Certificate
	// SystemRoots is set, and CAs is empty, where the kubeconfig has no CA bundle:
	// then the roots that the system trusts are meant (Kubernetes bootstrap discovery,
	// "Evolving kubeconfig"). It comes from files, standard input and HTTPS alone:
	// discovery by token and refreshed documents must have CAs.
	SystemRoots bool
}

// Marshal writes the kubeconfig of the cluster, byte for byte as kubeadm writes it into
// the cluster-info ConfigMap (k8s.io/client-go/tools/clientcmd 0.36, Write, of one
// unnamed cluster). [ParseKubeconfig] reads it back to the same value. The error is
// [CheckServer], [CheckServerScheme], [CheckCredentials], [CheckCA] or [CheckNoCA].
func (c *ClusterInfo) Marshal() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	bundle, err := marshalCAs(c.CAs)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 256+len(c.Server)+base64.StdEncoding.EncodedLen(len(bundle)))
	b = append(b, "apiVersion: v1\nclusters:\n- cluster:\n"...)
	if len(bundle) > 0 {
		b = append(b, "    certificate-authority-data: "...)
		b = base64.StdEncoding.AppendEncode(b, bundle)
		b = append(b, '\n')
	}
	b = append(b, "    server: "...)
	b = append(b, c.Server...)
	b = append(b, "\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n"...)
	return b, nil
}

// Roots returns the certificates that the API server's certificate must chain to: the
// CAs, or the system's roots if SystemRoots is set. It is never nil without an error,
// since a nil pool means the system's roots to crypto/tls. The error is [CheckNoCA].
func (c *ClusterInfo) Roots() (*x509.CertPool, error) {
	if err := c.checkCAs(); err != nil {
		return nil, err
	}
	if c.SystemRoots {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, &Error{Check: CheckNoCA, Got: "no system roots", Err: err}
		}
		return roots, nil
	}
	return poolOf(c.CAs), nil
}

// Pins returns the pins of the CAs, in their order: what a joining node is given beside
// its token.
func (c *ClusterInfo) Pins() []Pin {
	pins := make([]Pin, 0, len(c.CAs))
	for _, ca := range c.CAs {
		pins = append(pins, PinOf(ca))
	}
	return pins
}

// Equal reports whether both are the same cluster information, CAs in the same order.
func (c *ClusterInfo) Equal(other *ClusterInfo) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.Server == other.Server && c.SystemRoots == other.SystemRoots &&
		slices.EqualFunc(c.CAs, other.CAs, (*x509.Certificate).Equal)
}

func (c *ClusterInfo) check() error {
	if c == nil {
		return &Error{Check: CheckServer, Got: "no ClusterInfo", Want: wantServer}
	}
	if _, err := parseServer(c.Server); err != nil {
		return err
	}
	return c.checkCAs()
}

func (c *ClusterInfo) checkCAs() error {
	switch {
	case c == nil || len(c.CAs) == 0 && !c.SystemRoots:
		return &Error{Check: CheckNoCA, Got: "no CAs", Want: "CAs, or SystemRoots"}
	case len(c.CAs) > 0 && c.SystemRoots:
		return &Error{Check: CheckNoCA, Got: "CAs and SystemRoots", Want: "one of them"}
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
