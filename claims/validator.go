package claims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// The defaults of [ValidatorConfig].
const (
	// DefaultMaxLifetime is the longest life of a token.
	DefaultMaxLifetime = 24 * time.Hour
	// DefaultLeeway is how far clocks may be apart, as for kube-apiserver, and the most
	// that may be configured.
	DefaultLeeway = time.Minute
)

// ValidatorConfig says what a [Validator] stands on. Issuer, Keys, Audiences, one of Objects
// and InsecureSkipObjects, and one of Replay and InsecureAllowReplay are required.
type ValidatorConfig struct {
	// Issuer is the one accepted "iss", compared byte for byte.
	Issuer string
	// Keys are the issuer's keys, such as a [jws.RemoteKeySet].
	Keys jws.KeySet
	// Audiences are the names of whoever validates; a token must be for one of them.
	// Never name the API server's audience unless this is the API server: tokens for it
	// can be stolen here and used there.
	Audiences []string
	// Objects gets the objects that tokens name, and the Node for Node.
	Objects Objects
	// InsecureSkipObjects validates without Objects, for a service that has no access to
	// the API server: a token is accepted until its end, whatever became of its service
	// account, pod, Secret and Node. Objects and Node must be unset then. Keep MaxLifetime
	// short with it.
	InsecureSkipObjects bool
	// MaxStaleness is how old an answer of Objects may be; 0 refuses a [StaleObjects].
	// An older answer is none ([CheckStaleAnswer], [ErrRetry]). For that long a token may
	// be accepted whose object is gone.
	MaxStaleness time.Duration
	// Replay remembers tokens, so that each is accepted once.
	Replay ReplayCache
	// InsecureAllowReplay accepts a token as often as it comes, as long as it lives:
	// whoever reads it on its way can use it too. It is for services to which a workload
	// sends its token with each request; where the machine is attested, a token is worth
	// nothing elsewhere. Replay must be nil then.
	InsecureAllowReplay bool
	// MaxLifetime is the longest life of a token, from "iat" to "exp", or to "warnafter"
	// where that comes first; 0 means DefaultMaxLifetime. It must not be negative.
	MaxLifetime time.Duration
	// Leeway is how far clocks may be apart; 0 means DefaultLeeway, the most, and a
	// negative value none at all.
	Leeway time.Duration
	// Node is for [Validator.ValidateOnNode]. Its zero value means that tokens are not
	// compared with machines.
	Node NodeCheck
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Validator validates bound tokens for everybody but the API server itself. It refuses
// what kube-apiserver refuses (see apiserver.Validator) and beyond that a token
//
//   - whose header or claims have more than one reading, or "typ" other than "JWT";
//   - of a legacy kind, or without "exp", "nbf", "iat", "jti" or key ID;
//   - that lives longer than MaxLifetime, or is used after its "warnafter" has passed;
//   - whose "sub" is not that of the private claims, or which is bound to a Secret and
//     something else;
//   - whose pod is on another node than the token's, or of another service account;
//   - whose Node is gone, deleted or made again, also where it is bound to a pod;
//   - that was presented before.
//
// A refusal is an [*Error] with a check. Where a key set, a getter or the replay cache
// could not answer the error is [ErrRetry], and the token is neither accepted nor used
// up. It is safe for concurrent use.
type Validator struct {
	c       ValidatorConfig
	objects Objects // nil where they are skipped
}

// NewValidator checks the configuration; an error has [refusal.CheckConfig].
func NewValidator(config ValidatorConfig) (*Validator, error) {
	switch {
	case config.Issuer == "":
		return nil, refusal.Config("Issuer", "", "the issuer's URL")
	case config.Keys == nil:
		return nil, refusal.Config("Keys", "", "a key set")
	case len(config.Audiences) == 0 || slices.Contains(config.Audiences, ""):
		return nil, refusal.Config("Audiences", "without one, or with an empty one", "at least one, none empty")
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
	config.Now = clock(config.Now)
	v := &Validator{}
	if !config.InsecureSkipObjects {
		fresh := FreshObjects{From: config.Objects, MaxStaleness: config.MaxStaleness, Now: config.Now}
		if err := fresh.Check(); err != nil {
			return nil, err
		}
		v.objects = fresh
	}
	if err := config.Node.ready(); err != nil && !config.Node.isZero() {
		return nil, err
	}
	config.MaxLifetime = cmp.Or(config.MaxLifetime, DefaultMaxLifetime)
	config.Leeway = max(cmp.Or(config.Leeway, DefaultLeeway), 0)
	config.Audiences = slices.Clone(config.Audiences)
	v.c = config
	return v, nil
}

// Validate decides about a token. Where there is a replay cache, a token that is accepted
// is used up.
func (v *Validator) Validate(ctx context.Context, token string) (*Result, error) {
	r, _, err := v.check(ctx, token)
	if err == nil {
		err = v.use(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ValidateOnNode decides whether a token is good and was issued to a workload on the very
// machine that presents it; see [NodeCheck]. A token that comes from another machine is
// refused and not used up: the workload that it belongs to can still present it. The Node
// is read once.
func (v *Validator) ValidateOnNode(ctx context.Context, token string, node *AttestedNode) (*Result, *NodeFacts, error) {
	if v != nil && v.c.Node.Machines == nil {
		return nil, nil, refusal.Config("Node", "", "a NodeCheck in the configuration")
	}
	r, object, err := v.check(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	claim, err := nodeClaim(r, node)
	if err != nil {
		return nil, nil, err
	}
	facts, err := v.c.Node.compare(ctx, claim, node, object, v.c.Now())
	if err == nil {
		err = v.use(ctx, r)
	}
	if err != nil {
		return nil, nil, err
	}
	return r, facts, nil
}

// check does everything but remember the token. It returns the Node that the token names,
// nil where it names none or objects are skipped.
func (v *Validator) check(ctx context.Context, token string) (*Result, *Node, error) {
	if v == nil || v.c.Keys == nil {
		return nil, nil, refusal.Config("Validator", "that NewValidator did not make", "one that it made")
	}
	c, key, err := v.verify(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	both := slices.DeleteFunc(slices.Clone(v.c.Audiences), func(wanted string) bool { return !slices.Contains(c.Audiences, wanted) })
	if len(both) == 0 {
		return nil, nil, &Error{Check: CheckAudience, Got: refusal.Quotes(c.Audiences), Want: refusal.Quotes(v.c.Audiences)}
	}
	now := v.c.Now()
	if err := cmp.Or(checkConsistent(c), v.checkTimes(c, now)); err != nil {
		return nil, nil, err
	}
	var node *Node
	if v.objects != nil {
		node, err = v.checkObjects(ctx, &c.Kubernetes, now.Add(-v.c.Leeway))
	}
	if err != nil {
		return nil, nil, err
	}
	return &Result{Claims: c, Audiences: both, Key: key, validated: true}, node, nil
}

// verify returns the claims of a token that a known key signed, and the key.
func (v *Validator) verify(ctx context.Context, token string) (*Claims, *jws.Key, error) {
	t, err := jws.Parse(token)
	if err != nil {
		return nil, nil, &Error{Check: CheckToken, Got: "no token in compact form", Want: "one", Err: err}
	}
	c, err := v.checkHeader(t)
	if err != nil {
		return nil, nil, err
	}
	verified, err := jws.VerifyToken(ctx, t, v.c.Keys)
	switch {
	case errors.Is(err, jws.ErrRetry):
		return nil, nil, retry("the key set", err)
	case errors.Is(err, jws.CheckKeyID):
		return nil, nil, &Error{Check: CheckNoKey, Got: "key ID " + refusal.Text(t.KeyID()), Want: "one of the key set", Err: err}
	case err != nil:
		return nil, nil, &Error{Check: CheckSignature, Got: "no signature of a known key", Want: "one", Err: err}
	}
	return c, verified.Key, nil
}

// checkHeader looks at what costs nothing to look at: the header and, unverified, "iss".
func (v *Validator) checkHeader(t *jws.Token) (*Claims, error) {
	switch typ := t.Type(); {
	case typ != "" && typ != "JWT":
		return nil, &Error{Check: CheckTokenType, Got: "typ " + refusal.Text(typ), Want: "JWT or none"}
	case t.KeyID() == "":
		return nil, &Error{Check: CheckNoKey, Got: "no key ID", Want: "one of the key set"}
	}
	c, err := Parse(t.UnverifiedPayload())
	if err != nil {
		return nil, err
	}
	if c.Issuer != v.c.Issuer {
		return nil, &Error{Check: CheckIssuer, Got: refusal.OrNothing(refusal.Text(c.Issuer)), Want: v.c.Issuer}
	}
	return c, nil
}

// use remembers the token until it cannot be valid any more.
func (v *Validator) use(ctx context.Context, r *Result) error {
	if v.c.Replay == nil {
		return nil
	}
	until := endOf(r.Claims).Time().Add(v.c.Leeway)
	switch err := v.c.Replay.Use(ctx, r.Claims.Issuer, r.Claims.ID, until); {
	case errors.Is(err, CheckReplay):
		return err
	case err != nil:
		return retry("the replay cache", err)
	}
	// Getters and the cache took their time: an entry may have ended since.
	return v.checkTimes(r.Claims, v.c.Now())
}
