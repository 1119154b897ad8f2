package apiclient

import (
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

// Load returns a copy of a configuration, in which files are replaced by what they contain.
// It refuses, with [refusal.CheckConfig], a server that is not https://host[:port][/path] or
// whose certificate would not be verified, a credential plugin and a transport. Other errors
// are the file system's.
func Load(c *rest.Config) (*rest.Config, error) {
	switch {
	case c == nil:
		return nil, refusal.Config("API", "", "how the API server is reached")
	case c.ExecProvider != nil || c.AuthProvider != nil:
		return nil, refusal.Config("API", "a credential plugin", "a bootstrap token or nothing: the plugin may be this one")
	case c.Insecure:
		return nil, refusal.Config("API", "without a check of the server's certificate", "the cluster's CA")
	case c.Transport != nil:
		return nil, refusal.Config("API", "a transport of its own", "none: the bounds on answers would not hold")
	}
	if err := checkServer(c.Host); err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	c.QPS, c.Timeout = -1, 0 // a handful of calls, each with its own limit
	if c.UserAgent == "" {
		c.UserAgent = "kubelet-authenticator"
	}
	// Protocol Buffers, CBOR and YAML take more memory for what the same bytes can say.
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

// checkServer refuses a server to which a credential would go in the clear, or with another
// credential beside it.
func checkServer(server string) error {
	const want = "https://host[:port][/path]"
	u, err := url.Parse(server)
	switch {
	case err != nil: // whose text may repeat a password
		return refusal.Config("API", "a server that is no URL", want)
	case u.User != nil:
		return refusal.Config("API", "a server's URL with a user", want)
	case u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return refusal.Config("API", "the server "+refusal.Quote(server), want)
	}
	return nil
}

// CAs returns the CAs of a configuration that [Load] returned, in the order in which they stand
// there: none if the system's are meant.
func CAs(c *rest.Config) ([]*x509.Certificate, error) {
	if len(c.CAData) == 0 {
		return nil, nil
	}
	all, err := certutil.ParseCertsPEM(c.CAData)
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "a CA that cannot be read", Err: err}
	}
	return all, nil
}
