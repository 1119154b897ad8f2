package claims

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// The defaults of [StrictConfig].
const (
	// DefaultMaxLifetime is the longest life of a token.
	DefaultMaxLifetime = 24 * time.Hour
	// DefaultLeeway is how far clocks may be apart, as for kube-apiserver, and the most
	// that may be configured.
	DefaultLeeway = time.Minute
)

// StrictConfig says what a [StrictValidator] stands on. Issuer, Keys, Audiences, Objects
// and one of Replay and InsecureAllowReplay are required.
type StrictConfig struct {
	// Issuer is the one accepted "iss", compared byte for byte.
	Issuer string
	// Keys are the issuer's keys.
	Keys jws.KeySet
	// Audiences are the names of whoever validates; a token must be for one of them.
	// Never name the API server's audience unless this is the API server: tokens for it
	// can be stolen here and used there.
	Audiences []string
	// Objects gets the objects that tokens name.
	Objects Objects
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
	// MaxStaleness is how old an answer of Objects may be; 0 refuses a [StaleObjects].
	// An older answer is none ([CheckStaleAnswer], [ErrRetry]). For that long a token may
	// be accepted whose object is gone.
	MaxStaleness time.Duration
	// Node is for [StrictValidator.ValidateOnNode]; nil means that tokens are not held
	// against machines. Where its Objects is nil it has the Objects and the MaxStaleness
	// of this configuration, and where its Now is nil this Now.
	Node *NodeCheck
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// StrictValidator validates bound tokens for everybody but the API server itself. It
// refuses what kube-apiserver refuses (see [KubernetesValidator]) and beyond that a token
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
type StrictValidator struct {
	c     StrictConfig
	nodes Objects // gets the Node for c.Node
}

// NewStrictValidator checks the configuration; an error has [CheckConfig].
func NewStrictValidator(config StrictConfig) (*StrictValidator, error) {
	switch {
	case config.Issuer == "":
		return nil, configError("no Issuer", "the issuer's URL")
	case config.Keys == nil:
		return nil, configError("no Keys", "a key set")
	case len(config.Audiences) == 0 || slices.Contains(config.Audiences, ""):
		return nil, configError("no audience, or an empty one", "at least one, none empty")
	case config.Objects == nil:
		return nil, configError("no Objects", "a getter for objects")
	case (config.Replay == nil) != config.InsecureAllowReplay:
		return nil, configError("Replay and InsecureAllowReplay both or none", "one of them")
	case config.MaxLifetime < 0:
		return nil, configError("MaxLifetime "+config.MaxLifetime.String(), "0 or more")
	case config.Leeway > DefaultLeeway:
		return nil, configError("Leeway "+config.Leeway.String(), "at most "+DefaultLeeway.String())
	}
	if err := checkStaleness(config.Objects, config.MaxStaleness); err != nil {
		return nil, err
	}
	config.Now = clock(config.Now)
	var nodes Objects
	if config.Node != nil {
		node := *config.Node
		if node.Objects == nil {
			node.Objects, node.MaxStaleness = config.Objects, config.MaxStaleness
		}
		if node.Now == nil {
			node.Now = config.Now
		}
		if err := node.ready(); err != nil {
			return nil, err
		}
		config.Node, nodes = &node, node.objects()
	}
	config.Objects = boundedObjects{config.Objects, config.MaxStaleness, config.Now}
	if config.MaxLifetime == 0 {
		config.MaxLifetime = DefaultMaxLifetime
	}
	switch {
	case config.Leeway == 0:
		config.Leeway = DefaultLeeway
	case config.Leeway < 0:
		config.Leeway = 0
	}
	config.Audiences = slices.Clone(config.Audiences)
	return &StrictValidator{c: config, nodes: nodes}, nil
}

// Validate decides about a token. Where there is a replay cache, a token that is accepted
// is used up.
func (v *StrictValidator) Validate(ctx context.Context, token string) (*Result, error) {
	if !v.ready() {
		return nil, validatorConfigError()
	}
	r, _, err := v.check(ctx, token, v.c.Objects)
	if err != nil {
		return nil, err
	}
	if err := v.use(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// ValidateOnNode decides whether a token is good and was issued to a workload on the very
// machine that presents it; see [NodeCheck]. A token that comes from another machine is
// refused and not used up: the workload that it belongs to can still present it. The Node
// is read once.
func (v *StrictValidator) ValidateOnNode(ctx context.Context, token string, node *AttestedNode) (*Result, *NodeFacts, error) {
	if !v.ready() {
		return nil, nil, validatorConfigError()
	}
	if v.c.Node == nil {
		return nil, nil, configError("no Node", "a NodeCheck in the configuration")
	}
	r, object, err := v.check(ctx, token, v.nodes)
	if err != nil {
		return nil, nil, err
	}
	claim, err := nodeClaim(r, node)
	if err != nil {
		return nil, nil, err
	}
	facts, err := v.c.Node.decide(ctx, claim, node, object)
	if err != nil {
		return nil, nil, err
	}
	if err := v.use(ctx, r); err != nil {
		return nil, nil, err
	}
	return r, facts, nil
}

// ready reports whether NewStrictValidator made the validator.
func (v *StrictValidator) ready() bool { return v != nil && v.c.Keys != nil }

func validatorConfigError() *Error {
	return configError("a validator that was not made by its constructor", "one that was")
}

// check does everything but remember the token. It returns the Node that the token names,
// nil where it names none.
func (v *StrictValidator) check(ctx context.Context, token string, nodes Objects) (*Result, *Node, error) {
	c, key, err := v.verify(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	both := intersect(c.Audiences, v.c.Audiences)
	if len(both) == 0 {
		return nil, nil, &Error{Check: CheckAudience, Got: refusal.Quotes(c.Audiences), Want: refusal.Quotes(v.c.Audiences)}
	}
	if err := checkConsistent(c); err != nil {
		return nil, nil, err
	}
	now := v.c.Now()
	if err := v.checkTimes(c, now); err != nil {
		return nil, nil, err
	}
	node, err := v.checkObjects(ctx, &c.Kubernetes, nodes, now.Add(-v.c.Leeway))
	if err != nil {
		return nil, nil, err
	}
	return &Result{Claims: c, Audiences: both, Key: key, validated: true}, node, nil
}

// verify returns the claims of a token that a known key signed, and the key.
func (v *StrictValidator) verify(ctx context.Context, token string) (*Claims, *jws.Key, error) {
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
func (v *StrictValidator) checkHeader(t *jws.Token) (*Claims, error) {
	switch typ := t.Type(); typ {
	case "", "JWT":
	default:
		return nil, &Error{Check: CheckTokenType, Got: "typ " + refusal.Text(typ), Want: "JWT or none"}
	}
	if t.KeyID() == "" {
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
func (v *StrictValidator) use(ctx context.Context, r *Result) error {
	if v.c.Replay == nil {
		return nil
	}
	until := endOf(r.Claims).Time().Add(v.c.Leeway)
	err := v.c.Replay.Use(ctx, r.Claims.Issuer, r.Claims.ID, until)
	if err == nil {
		// Getters and the cache took their time: an entry may have ended since.
		return v.checkTimes(r.Claims, v.c.Now())
	}
	if errors.Is(err, CheckReplay) {
		return err
	}
	return retry("the replay cache", err)
}
