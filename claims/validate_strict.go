package claims

import (
	"context"
	"errors"
	"github.com/nodeattest/nodeattest/refusal"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/jws"
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
	// MaxStaleness is the most that the answers of an Objects that is a [StaleObjects]
	// may lag behind; 0 refuses such an Objects. For that long a token may be accepted
	// whose object is gone.
	MaxStaleness time.Duration
	// Node is for [StrictValidator.ValidateOnNode]; nil means that tokens are not held
	// against machines.
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
	c StrictConfig
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
	if config.Node != nil {
		if err := config.Node.ready(); err != nil {
			return nil, err
		}
		node := *config.Node
		config.Node = &node
	}
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
	config.Now = clock(config.Now)
	return &StrictValidator{c: config}, nil
}

// Validate decides about a token. Where there is a replay cache, a token that is accepted
// is used up.
func (v *StrictValidator) Validate(ctx context.Context, token string) (*Result, error) {
	r, err := v.check(ctx, token)
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
// refused and not used up: the workload that it belongs to can still present it.
func (v *StrictValidator) ValidateOnNode(ctx context.Context, token string, node *AttestedNode) (*Result, *NodeFacts, error) {
	if v.c.Node == nil {
		return nil, nil, configError("no Node", "a NodeCheck in the configuration")
	}
	r, err := v.check(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	facts, err := v.c.Node.Check(ctx, r, node)
	if err != nil {
		return nil, nil, err
	}
	if err := v.use(ctx, r); err != nil {
		return nil, nil, err
	}
	return r, facts, nil
}

// check does everything but remember the token.
func (v *StrictValidator) check(ctx context.Context, token string) (*Result, error) {
	t, err := jws.Parse(token)
	if err != nil {
		return nil, &Error{Check: CheckToken, Got: "no token in compact form", Want: "one", Err: err}
	}
	c, err := v.checkHeader(t)
	if err != nil {
		return nil, err
	}
	verified, err := jws.VerifyToken(ctx, t, v.c.Keys)
	switch {
	case errors.Is(err, jws.ErrRetry):
		return nil, retry("the key set", err)
	case errors.Is(err, jws.CheckKeyID):
		return nil, &Error{Check: CheckNoKey, Got: "key ID " + refusal.Text(t.KeyID()), Want: "one of the key set", Err: err}
	case err != nil:
		return nil, &Error{Check: CheckSignature, Got: "no signature of a known key", Want: "one", Err: err}
	}
	both := intersect(c.Audiences, v.c.Audiences)
	if len(both) == 0 {
		return nil, &Error{Check: CheckAudience, Got: quoteAll(c.Audiences), Want: quoteAll(v.c.Audiences)}
	}
	if err := checkConsistent(c); err != nil {
		return nil, err
	}
	now := v.c.Now()
	if err := v.checkTimes(c, now); err != nil {
		return nil, err
	}
	if err := v.checkObjects(ctx, &c.Kubernetes, now.Add(-v.c.Leeway)); err != nil {
		return nil, err
	}
	return &Result{Claims: c, Audiences: both, Key: verified.Key, validated: true}, nil
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
	if errors.Is(err, CheckReplay) || errors.Is(err, ErrRetry) {
		return err
	}
	return retry("the replay cache", err)
}

func quoteAll(values []string) string {
	if len(values) == 0 {
		return "nothing"
	}
	var b []byte
	for i, value := range values {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendQuote(b, value)
	}
	return string(b)
}
