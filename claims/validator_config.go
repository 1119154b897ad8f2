package claims

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// The defaults of [ValidatorConfig].
const (
	// defaultMaxLifetime is the maximum lifetime of a token.
	defaultMaxLifetime = 24 * time.Hour
	// DefaultLeeway is how far clocks may be apart, as for kube-apiserver, and the largest
	// value that may be configured.
	DefaultLeeway = time.Minute
)

// ValidatorConfig configures a [Validator]. One of Issuers and Review, Audiences, one of Objects
// and InsecureSkipObjects, and one of Replay and InsecureAllowReplay are required.
type ValidatorConfig struct {
	// Issuers are the accepted values of "iss", compared byte for byte, each with the keys, such
	// as a [jws.RemoteKeySet], that may sign for it. A key set that is fetched for an issuer must
	// not be used for another. There is one issuer, except while that of a cluster changes: then
	// kube-apiserver accepts tokens of the old one too (--service-account-issuer, given twice),
	// and so does a service that has both here. It publishes the keys of both in one set, but a
	// discovery document of the new issuer only: for the old one, use a key set of
	// RemoteConfig.JWKSURL.
	//
	// Don't mix two clusters, neither by their issuers nor by their keys for the same issuer,
	// such as kubeadm's default: service accounts of one name would be one user; only the Key and
	// the Issuer of a Result say which cluster signed.
	Issuers map[string]jws.KeySet
	// Review has the API server review a token for audiences (TokenReview, authentication.k8s.io/v1),
	// in place of Issuers and their keys. The API server alone then checks signature, issuer, service
	// account and the object that the token is bound to. It does not look at the Node of a pod's
	// token, so Nodes are still read from Objects, and no other object is. Each value of the answer
	// must be that of the token; a difference is refused with a check of its own, such as
	// "review-user" or "review-node-uid". The API server may remember a good token, kube-apiserver
	// for 10 seconds (pkg/kubeapiserver/authenticator/config.go in k8s.io/kubernetes), so for that
	// long a deleted pod's token may still pass.
	//
	// For a token that the API server does not authenticate, the error wraps [CheckReview]; any other
	// error means that it did not answer. Review is called at most once for a token, after all other
	// checks of its claims. It must be safe for concurrent use, and must not put the token into
	// an error.
	Review func(ctx context.Context, token string, audiences []string) (*Review, error)
	// Audiences are the names of the validating service; a token must be for one of them.
	//
	// Don't use the API server's audience. A token for it, such as the one that is mounted into
	// each pod by default, could be stolen here and used there. An API server's audience is its
	// issuer unless it is configured otherwise, so Issuers are refused as Audiences; with Review,
	// a token is refused whose issuer is an audience ("audience").
	Audiences []string
	// InsecureAPIServerAudience allows Audiences to have issuers among them.
	InsecureAPIServerAudience bool
	// Objects gets the objects that tokens name, and the Node for Node.
	Objects Objects
	// InsecureSkipObjects validates without Objects, for a service that has no access to the API
	// server: a token is accepted until it ends, even if its service account, pod, Secret, Node
	// or webhook configuration was deleted. Objects and Node must then be unset. Keep MaxLifetime
	// short when using it.
	InsecureSkipObjects bool
	// MaxStaleness is how old an answer of Objects may be; 0 refuses any but [LiveObjects]. An
	// older answer is refused ("stale-answer", [refusal.ErrRetry]). A token whose
	// object is gone may still be accepted for that long.
	MaxStaleness time.Duration
	// Replay remembers tokens, so that each is accepted only once.
	//
	// Several validators of the same audience must share one, or each accepts a token once.
	Replay ReplayCache
	// InsecureAllowReplay accepts a token any number of times during its life: anyone who
	// reads it in transit can use it too. It is meant for services to which a workload
	// sends its token with each request; if the machine is attested, a token is worthless
	// elsewhere. Replay must then be nil.
	InsecureAllowReplay bool
	// InsecureAllowUnbound accepts a token that is bound to nothing but its service account, such
	// as that of "kubectl create token" without --bound-object-kind; otherwise it is refused with
	// "unbound-token". Only its own end and that of the service account end such a token, and it
	// names no node: [Validator.ValidateOnNode] refuses it in any case.
	InsecureAllowUnbound bool
	// MaxLifetime is the maximum lifetime of a token, from "iat" or "nbf", whichever is
	// earlier, to "exp", or to "warnafter" if that comes first; 0 means 24 hours. It
	// must not be negative.
	MaxLifetime time.Duration
	// Leeway is how far clocks may be apart; 0 means DefaultLeeway, which is also the
	// maximum, and a negative value means none at all.
	Leeway time.Duration
	// Node configures [Validator.ValidateOnNode]. Its zero value means that tokens are not
	// compared with machines.
	Node NodeCheck
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// NewValidator checks the configuration; an error has [refusal.CheckConfig].
func NewValidator(config ValidatorConfig) (*Validator, error) {
	if err := config.checkIssuers(); err != nil {
		return nil, err
	}
	switch {
	case len(config.Audiences) == 0 || slices.Contains(config.Audiences, ""):
		return nil, refusal.Config("Audiences", "without one, or with an empty one", "at least one, none empty")
	case slices.ContainsFunc(config.Audiences, config.accepts) && !config.InsecureAPIServerAudience:
		return nil, refusal.Config("Audiences", "with the API server's, "+config.issuers(), "the validating service's own, or InsecureAPIServerAudience")
	case (config.Objects == nil) != config.InsecureSkipObjects:
		return nil, refusal.Config("Objects and InsecureSkipObjects", "both or none", "one of them")
	case (config.Replay == nil) != config.InsecureAllowReplay:
		return nil, refusal.Config("Replay and InsecureAllowReplay", "both or none", "one of them")
	case config.MaxLifetime < 0:
		return nil, refusal.Config("MaxLifetime", config.MaxLifetime.String(), "0 or more")
	case config.Leeway > DefaultLeeway:
		return nil, refusal.Config("Leeway", config.Leeway.String(), "at most "+DefaultLeeway.String())
	case !config.Node.isZero() && config.InsecureSkipObjects:
		return nil, refusal.Config("Node", "with InsecureSkipObjects", "Objects that have Nodes")
	}
	config.Now = wallclock.Or(config.Now)
	if !config.InsecureSkipObjects {
		fresh := FreshObjects{From: config.Objects, MaxStaleness: config.MaxStaleness, Now: config.Now}
		if err := fresh.Check(); err != nil {
			return nil, err
		}
		config.Objects = fresh
	}
	if err := config.Node.ready(); err != nil && !config.Node.isZero() {
		return nil, err
	}
	config.MaxLifetime = cmp.Or(config.MaxLifetime, defaultMaxLifetime)
	config.Leeway = max(cmp.Or(config.Leeway, DefaultLeeway), 0)
	config.Audiences, config.Issuers = slices.Clone(config.Audiences), maps.Clone(config.Issuers)
	return &Validator{config: config}, nil
}

// checkIssuers refuses issuers without keys, and those with keys that are fetched for another.
func (config *ValidatorConfig) checkIssuers() error {
	switch {
	case config.Review != nil && len(config.Issuers) > 0:
		return refusal.Config("Issuers and Review", "both", "one of them")
	case config.Review == nil && len(config.Issuers) == 0, config.accepts(""):
		return refusal.Config("Issuers", "without one, or with an empty one", "at least one, none empty, or Review")
	}
	for issuer, keys := range config.Issuers {
		if keys == nil {
			return refusal.Config("Issuers", issuer+" without keys", "a key set")
		}
		if of, ok := keys.(interface{ Issuer() string }); ok && of.Issuer() != "" && of.Issuer() != issuer {
			return refusal.Config("Issuers", issuer+" with the keys of issuer "+of.Issuer(), "its own")
		}
	}
	return nil
}

func (config *ValidatorConfig) accepts(issuer string) bool {
	_, ok := config.Issuers[issuer]
	return ok
}

// issuers are the accepted issuers, for an error.
func (config *ValidatorConfig) issuers() string {
	return strings.Join(slices.Sorted(maps.Keys(config.Issuers)), " or ")
}
