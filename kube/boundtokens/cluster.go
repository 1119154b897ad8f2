package boundtokens

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// Options are the choices for [New]. Each zero field is a sensible default.
type Options struct {
	// Secrets accepts tokens that are bound to a Secret, where keys validate them. The account then
	// needs the right to get every Secret of the cluster, though only their metadata is asked for. Otherwise
	// such a token is refused ("secret-gone").
	Secrets bool
	// Timeout is how long a single request to the API server may take, with its answer; 0 means 5
	// seconds. It must not be negative. client-go gives the time of a credential plugin (ExecProvider) no
	// limit: a request waits for a plugin that hangs.
	Timeout time.Duration
}

// defaultTimeout is the time limit of a request.
const defaultTimeout = 5 * time.Second

// Cluster answers the questions of package claims from a cluster's API server, each time anew. It
// implements [claims.LiveObjects]. The zero value is refused. It is safe for concurrent use.
type Cluster struct {
	http    *http.Client
	server  *url.URL
	secrets bool
}

// New returns a Cluster that asks the API server of config, with the credential in it, and sends no
// request. Limits of the rate (QPS) are ignored: each request of the service is to be decided.
//
// A config without https, with Insecure, or that client-go refuses, and a negative Timeout give
// [refusal.CheckConfig].
func New(config *rest.Config, opts Options) (*Cluster, error) {
	switch {
	case config == nil:
		return nil, refusal.Config("rest.Config", "", "how the API server is reached")
	case config.Insecure:
		return nil, refusal.Config("rest.Config", "with Insecure, for a server that is not verified", "the cluster's CA")
	case opts.Timeout < 0:
		return nil, refusal.Config("Timeout", opts.Timeout.String(), "0 or more")
	}
	server, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil || server.Scheme != "https" || server.User != nil {
		return nil, refusal.Config("rest.Config", "with a Host that is no https://host[:port][/path]", "the API server's URL")
	}
	config = rest.CopyConfig(config)
	config.Timeout = cmp.Or(opts.Timeout, defaultTimeout)
	made, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "a rest.Config that makes no client", Want: "one that does", Err: err}
	}
	own := *made // http.DefaultClient, perhaps
	own.Timeout = config.Timeout
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return errRedirect }
	return &Cluster{http: &own, server: server, secrets: opts.Secrets}, nil
}

// ready refuses a Cluster that New did not make.
func (c *Cluster) ready() error {
	if c == nil || c.http == nil {
		return refusal.Config("Cluster", "that New did not make", "one that it made")
	}
	return nil
}

// ValidatorConfig returns the configuration of a service with these audiences, whose tokens are
// validated by a TokenReview and compared with the machine that presents them. The service still sets
// Replay or InsecureAllowReplay.
//
// To validate tokens by keys, clear Review and set Issuers to the cluster's issuer and its keys; the
// objects are then read here.
func (c *Cluster) ValidatorConfig(audiences ...string) claims.ValidatorConfig {
	return claims.ValidatorConfig{
		Review: c.Review, Audiences: slices.Clone(audiences), Objects: c, Node: claims.NodeCheck{FindMachine: c.FindMachine},
	}
}

// HandlerOptions returns options for [claims.NewHandler], with the records of the certificates that
// attested nodes got.
func (c *Cluster) HandlerOptions() claims.HandlerOptions {
	return claims.HandlerOptions{FindRecord: c.FindRecord}
}
