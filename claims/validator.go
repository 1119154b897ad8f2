package claims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Validator validates bound tokens for every service except the API server itself. It refuses
// each token that kube-apiserver refuses (see apiserver.Validator) and, in addition, a token
//
//   - whose header or claims can be read in more than one way, or with a "typ" other than
//     "JWT";
//   - of a legacy kind, or without "exp", "nbf", "iat", "jti" or key ID;
//   - that is bound to nothing but its service account, unless InsecureAllowUnbound is set;
//   - that lives longer than MaxLifetime, or is used after its "warnafter" has passed;
//   - that has an unknown private claim, or claims that no API server writes ([Claims.Check]), or whose pod's node did not exist;
//   - whose pod is on a different node or has a different service account;
//   - whose Node is gone, deleted or recreated, even if it is bound to a pod;
//   - that was presented before.
//
// A refusal is an [*Error] with a check. If a key set, a review, a getter or the replay cache could
// not answer, the error is [refusal.ErrRetry], and the token is neither accepted nor used up. A
// Validator is safe for concurrent use.
type Validator struct {
	config ValidatorConfig // complete; its Objects are [FreshObjects], or nil if they are skipped
}

// Validate decides on a token. With a replay cache, a token that is accepted is used up.
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
// refused but not used up: the workload that it belongs to can still present it. The Node
// is read only once.
func (v *Validator) ValidateOnNode(ctx context.Context, token string, node *AttestedNode) (*Result, *NodeFacts, error) {
	if v != nil && v.config.Node.FindMachine == nil {
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
	facts, err := v.config.Node.compare(ctx, claim, node, object, v.config.Now())
	if err == nil {
		err = v.use(ctx, r)
	}
	if err != nil {
		return nil, nil, err
	}
	return r, facts, nil
}

// check does everything except remember the token. It returns the Node that the token names,
// or nil if it names none or objects are skipped.
func (v *Validator) check(ctx context.Context, token string) (*Result, *Object, error) {
	if v == nil || v.config.Now == nil {
		return nil, nil, refusal.Config("Validator", "that NewValidator did not make", "one that it made")
	}
	c, key, err := v.verify(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	both := slices.DeleteFunc(slices.Clone(v.config.Audiences), func(wanted string) bool { return !slices.Contains(c.Audiences, wanted) })
	if len(both) == 0 {
		return nil, nil, &Error{Check: CheckAudience, Got: refusal.Quotes(c.Audiences), Want: refusal.Quotes(v.config.Audiences)}
	}
	now := v.config.Now()
	if err := cmp.Or(c.Check(), v.checkBound(c), v.checkTimes(c, now)); err != nil {
		return nil, nil, err
	}
	if node := c.Kubernetes.Node; node != nil && node.UID == "" {
		return nil, nil, &Error{Check: checkPrivate, Got: "a node without UID", Want: "a UID"}
	}
	r := InsecureResult(Result{Claims: c, Audiences: both, Key: key})
	if v.config.Review != nil {
		err = v.checkReview(ctx, token, r)
	}
	var node *Object
	if err == nil && v.config.Objects != nil {
		node, err = v.checkObjects(ctx, &c.Kubernetes, now.Add(-v.config.Leeway))
	}
	if err != nil {
		return nil, nil, err
	}
	return r, node, nil
}

// verify returns the claims of a token that a known key signed, and the key. With Review, it
// verifies no signature, and the key is nil.
func (v *Validator) verify(ctx context.Context, token string) (*Claims, *jws.Key, error) {
	t, err := jws.Parse(token)
	if err != nil {
		return nil, nil, &Error{Check: checkToken, Got: "no token in compact form", Want: "one", Err: err}
	}
	c, err := v.checkHeader(t)
	if err != nil || v.config.Review != nil {
		return c, nil, err
	}
	verified, err := t.VerifySignature(ctx, v.config.Issuers[c.Issuer])
	switch {
	case errors.Is(err, refusal.ErrRetry):
		return nil, nil, retry("the key set", err)
	case errors.Is(err, jws.CheckKeyID):
		return nil, nil, &Error{Check: CheckNoKey, Got: "key ID " + refusal.Text(t.KeyID()), Want: "one of the key set", Err: err}
	case err != nil:
		return nil, nil, &Error{Check: CheckSignature, Got: "no signature of a known key", Want: "one", Err: err}
	}
	return c, verified.Key, nil
}

// checkHeader makes the cheap checks before the signature: the header and, unverified, "iss".
func (v *Validator) checkHeader(t *jws.Token) (*Claims, error) {
	switch typ := t.Type(); {
	case typ != "" && typ != "JWT":
		return nil, &Error{Check: checkTokenType, Got: "typ " + refusal.Text(typ), Want: "JWT or none"}
	case t.KeyID() == "":
		return nil, &Error{Check: CheckNoKey, Got: "no key ID", Want: "one of the key set"}
	}
	c, err := Parse(t.UnverifiedPayload())
	if err != nil {
		return nil, err
	}
	if c.Issuer == "" || v.config.Review == nil && !v.config.accepts(c.Issuer) {
		return nil, &Error{Check: CheckIssuer, Got: refusal.OrNothing(refusal.Text(c.Issuer)), Want: cmp.Or(v.config.issuers(), "the API server's")}
	}
	return c, nil
}

// use remembers the token until it can no longer be valid.
func (v *Validator) use(ctx context.Context, r *Result) error {
	if v.config.Replay == nil {
		return nil
	}
	until := endOf(r.Claims).Time().Add(v.config.Leeway)
	switch err := v.config.Replay.Use(ctx, r.Claims.Issuer, r.Claims.ID, until); {
	case errors.Is(err, checkReplay):
		return err
	case err != nil:
		return retry("the replay cache", err)
	}
	// The getters and the cache took time: the token may have ended since.
	return v.checkTimes(r.Claims, v.config.Now())
}

// maxTokenIDSize is the length in bytes of the longest "jti" that strict validation accepts.
// kube-apiserver writes 36 bytes.
const maxTokenIDSize = 256

// maxWebhookLifetime is the longest lifetime of a token for an admission webhook
// (pkg/registry/core/serviceaccount/storage/token.go in k8s.io/kubernetes 1.37).
const maxWebhookLifetime = 600

// Check refuses claims that no API server writes, by comparing them with each other: a name that
// is not a DNS name, an object without a UID except a pod's node, which may not have existed
// ("private-claims"), more than one object ("binding"), attestations without a webhook
// configuration or the other way round ("binding"), no ID or a long one ("token-id"), and another
// subject ("subject"). It looks at no clock, and not at the issuer.
func (c *Claims) Check() error {
	c = cmp.Or(c, &Claims{})
	k := &c.Kubernetes
	if !names.ValidLabel(k.Namespace) {
		return &Error{Check: checkPrivate, Got: "namespace " + refusal.OrNothing(refusal.Text(k.Namespace)), Want: "a DNS label"}
	}
	objects := 0
	for _, bound := range k.bindings() {
		if bound.ref == nil {
			continue
		}
		ofPod := bound.resource == alive.Node && k.Pod != nil // a pod's node, which may not have existed
		if !ofPod {
			objects++
		}
		switch {
		case !names.ValidNode(bound.ref.Name):
			return &Error{Check: checkPrivate, Got: bound.resource.Name + " " + refusal.OrNothing(refusal.Text(bound.ref.Name)), Want: "a DNS subdomain"}
		case bound.ref.UID == "" && !ofPod:
			return &Error{Check: checkPrivate, Got: "a " + bound.resource.Name + " without UID", Want: "a UID"}
		}
	}
	switch want := MakeSubject(k.Namespace, k.ServiceAccount.Name); {
	case objects > 2: // one is the service account
		return &Error{Check: checkBinding, Got: strconv.Itoa(objects-1) + " objects, not counting a pod's node", Want: "at most one"}
	case c.ID == "" || len(c.ID) > maxTokenIDSize:
		return &Error{Check: checkTokenID, Got: strconv.Itoa(len(c.ID)) + " bytes", Want: "1 to " + strconv.Itoa(maxTokenIDSize)}
	case c.Subject != want:
		return &Error{Check: checkSubject, Got: refusal.OrNothing(refusal.Text(c.Subject)), Want: want}
	}
	return c.checkAttestations()
}

// checkAttestations checks a token for an admission webhook as kube-apiserver 1.37 does, and that
// no other token has attestations.
func (c *Claims) checkAttestations() error {
	k := &c.Kubernetes
	bound, life := k.ValidatingWebhookConfiguration != nil || k.MutatingWebhookConfiguration != nil, c.Expiry.Unix-c.IssuedAt.Unix
	groups := cmp.Or(k.Attestations, &Attestations{}).AdmissionReviewAPIGroups
	switch {
	case !bound && k.Attestations == nil:
		return nil
	case !bound:
		return &Error{Check: checkBinding, Got: "attestations without a webhook configuration", Want: "none"}
	case len(groups) != 1 || groups[0] != "*" && !names.ValidNode(groups[0]):
		return &Error{Check: checkBinding, Got: "a webhook configuration with the API groups " + refusal.OrNothing(refusal.Quotes(groups)), Want: "one group, or *"}
	case len(c.Audiences) != 1:
		return &Error{Check: checkBinding, Got: "a webhook configuration with " + strconv.Itoa(len(c.Audiences)) + " audiences", Want: "1"}
	case life > maxWebhookLifetime:
		return &Error{Check: checkBinding, Got: "a webhook configuration for " + strconv.FormatInt(life, 10) + " seconds", Want: "at most " + strconv.Itoa(maxWebhookLifetime)}
	}
	return nil
}

// checkBound refuses a token whose end is that of no object but its service account.
func (v *Validator) checkBound(c *Claims) error {
	k := &c.Kubernetes
	objects := k.bindings()
	if v.config.InsecureAllowUnbound || slices.ContainsFunc(objects[:], func(b binding) bool { return b.ref != nil && b.resource != alive.ServiceAccount }) {
		return nil
	}
	return &Error{Check: checkUnbound, Got: "a token that is bound to service account " + refusal.Text(k.ServiceAccount.Name) + " alone",
		Want: "one that is bound to a pod, a node, a Secret or a webhook configuration, or InsecureAllowUnbound"}
}

// endOf returns when a token's life ends: at "exp", or at "warnafter" if that is earlier.
// "warnafter" is the end that was requested, if the API server granted a later one.
func endOf(c *Claims) NumericDate {
	if warn := c.Kubernetes.WarnAfter; warn.Present && warn.Unix < c.Expiry.Unix {
		return warn
	}
	return c.Expiry
}

// checkTimes checks the times, which must all be present.
func (v *Validator) checkTimes(c *Claims, now time.Time) error {
	end, longest := endOf(c), int64(v.config.MaxLifetime/time.Second)
	life := end.Unix - min(c.IssuedAt.Unix, c.NotBefore.Unix)
	early, late := now.Add(v.config.Leeway), now.Add(-v.config.Leeway)
	switch {
	case !c.Expiry.Present:
		return checkLifetime.Refuse("no exp", "a time")
	case !c.NotBefore.Present:
		return checkLifetime.Refuse("no nbf", "a time")
	case !c.IssuedAt.Present:
		return checkLifetime.Refuse("no iat", "a time")
	case life <= 0 || life > longest:
		return checkLifetime.Refuse("a life of "+strconv.FormatInt(life, 10)+" seconds", "1 to "+strconv.FormatInt(longest, 10))
	case early.Before(c.NotBefore.Time()):
		return timeError(CheckNotBefore, c.NotBefore, "at most", early)
	case early.Before(c.IssuedAt.Time()):
		return timeError(CheckIssuedAt, c.IssuedAt, "at most", early)
	case late.After(c.Expiry.Time()):
		return timeError(CheckExpired, c.Expiry, "at least", late)
	case late.After(end.Time()):
		return timeError(checkStale, end, "at least", late)
	}
	return nil
}

func timeError(check Check, got NumericDate, relation string, want time.Time) error {
	return &Error{Check: check, Got: got.Time().Format(time.RFC3339), Want: relation + " " + want.UTC().Format(time.RFC3339)}
}

// checkObjects compares the objects that the token names with the existing ones, and the
// pod with the token; with Review, the Node alone. It returns the Node, or nil if the token names
// none.
func (v *Validator) checkObjects(ctx context.Context, k *Private, deletedBefore time.Time) (node *Object, err error) {
	for _, bound := range k.bindings() {
		if bound.ref == nil || v.config.Review != nil && bound.resource != alive.Node {
			continue // the API server's review says that the others exist
		}
		object, err := v.config.Objects.Get(ctx, bound.resource.Plural, bound.resource.Namespace(k.Namespace), bound.ref.Name)
		answer := alive.Answer{Found: object != nil, Err: err}
		if answer.Found {
			answer.UID, answer.Deleted = object.UID, object.Deleted
		}
		err = bound.resource.Compare(bound.ref.Name, bound.ref.UID, answer, deletedBefore)
		if err == nil && bound.resource == alive.Pod {
			err = checkPod(object, k)
		}
		if err != nil {
			return nil, err
		}
		if bound.resource == alive.Node {
			node = object
		}
	}
	return node, nil
}

// checkPod compares a pod with the token's service account and node.
func checkPod(pod *Object, k *Private) error {
	if pod.ServiceAccountName != k.ServiceAccount.Name {
		return &Error{Check: checkPodServiceAccount, Got: "a pod of service account " + refusal.OrNothing(refusal.Text(pod.ServiceAccountName)), Want: k.ServiceAccount.Name}
	}
	if node := cmp.Or(k.Node, &Ref{}).Name; pod.NodeName != node {
		return &Error{Check: checkPodNode, Got: "a pod on node " + refusal.OrNothing(refusal.Text(pod.NodeName)), Want: refusal.OrNothing(refusal.Text(node))}
	}
	return nil
}
