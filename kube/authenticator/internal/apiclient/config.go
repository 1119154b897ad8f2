package apiclient

import (
	"cmp"
	"crypto/x509"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxTokenSize bounds a file with a bearer token, in bytes.
const maxTokenSize = 64 << 10

// Load returns a copy of a configuration, in which files are replaced by their contents. It refuses,
// with [refusal.CheckConfig], a server that is not https://host[:port][/path] or whose certificate
// would not be verified, a credential plugin and a transport. Other errors are the file system's.
func Load(c *rest.Config) (*rest.Config, error) {
	switch {
	case c == nil:
		return nil, refusal.Config("API", "", "how the API server is reached")
	case c.ExecProvider != nil || c.AuthProvider != nil:
		return nil, refusal.Config("API", "a credential plugin", "a bootstrap token or nothing, as this program is a plugin itself")
	case c.Insecure:
		return nil, refusal.Config("API", "insecure-skip-tls-verify", "the cluster's CA")
	case c.Transport != nil:
		return nil, refusal.Config("API", "a transport of its own", "none, as it has no bounds on responses")
	}
	if err := checkServer(c.Host); err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	c.QPS, c.Timeout = -1, 0 // a handful of calls, each with its own limit
	c.UserAgent = cmp.Or(c.UserAgent, "kubelet-authenticator")
	// Protocol Buffers, CBOR and YAML can take more memory than JSON of the same size.
	c.ContentType, c.AcceptContentTypes = "application/json", "application/json"
	c.WarningHandler, c.WarningHandlerWithContext = rest.NoWarnings{}, rest.NoWarnings{}
	if err := rest.LoadTLSFiles(c); err != nil {
		return nil, err
	}
	if c.BearerTokenFile != "" {
		token, err := files.Read(c.BearerTokenFile, maxTokenSize)
		if err != nil {
			return nil, err
		}
		c.BearerToken, c.BearerTokenFile = strings.TrimSpace(string(token)), ""
	}
	return c, nil
}

// checkServer refuses a URL that is not https, or has a user and password.
func checkServer(server string) error {
	const want = "https://host[:port][/path]"
	u, err := url.Parse(server)
	switch {
	case err != nil: // its text may contain a password
		return refusal.Config("API", "a server that is not a URL", want)
	case u.User != nil:
		return refusal.Config("API", "a server's URL with a user", want)
	case u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return refusal.Config("API", "the server "+refusal.Quote(server), want)
	}
	return nil
}

// CAs returns the CAs of a configuration that [Load] returned, in their order: none if the system's CAs
// are used.
func CAs(c *rest.Config) ([]*x509.Certificate, error) {
	if len(c.CAData) == 0 {
		return nil, nil
	}
	all, err := certutil.ParseCertsPEM(c.CAData)
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "an invalid CA certificate", Err: err}
	}
	return all, nil
}
