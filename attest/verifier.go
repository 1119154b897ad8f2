package attest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// clockSkew is how far clocks may be apart.
const clockSkew = 60 * time.Second

// VerifierConfig configures a [Verifier]. The fields of the first group are required.
type VerifierConfig struct {
	// KeyRing holds the challenge keys.
	KeyRing *KeyRing
	// Kinds are the kinds of evidence that are accepted: at least one, each from a different
	// provider. The signer name of a request selects one, and so does that of a hello: each
	// kind has its own [csr.SignerChallenge]. Under Kubernetes' own signers, whose names
	// select none, the block KUBELET AUTHENTICATOR ATTESTATION PROVIDER selects it.
	Kinds []Kind
	// Policy is the node policy. Its signer names are the target signers, and its ClusterIDs
	// the names of the one cluster that the verifier serves. It is copied.
	Policy *csr.Policy
	// Authorizer decides about membership. One with a method CheckAuthorizer is asked whether
	// it fits the open roads.
	Authorizer Authorizer

	// MinimumVersions are the oldest accepted versions of the data formats, by provider of Kinds;
	// 1 for all others.
	MinimumVersions map[string]int
	// Window is how long a challenge can be answered, at most one hour, in whole seconds; zero
	// means 10 minutes.
	Window time.Duration
	// RequireTPMResident refuses keys that are not shown to be in a TPM. Requests for recovery
	// certificates always need one.
	RequireTPMResident bool
	// Now is the clock, of the policy too if that has none; nil means time.Now.
	Now func() time.Time
}

// Verifier is the control plane's side: it challenges hellos and verifies answers. Between the two it
// keeps no state except the key ring, so any replica can verify an answer to another one's challenge.
// It is made once and is safe for use from many goroutines.
//
// A Verifier is a [csr.Provider], for [csr.Verify].
type Verifier struct {
	c       VerifierConfig
	kinds   []*openKind
	signers []string // of certificates, sorted
}

// openKind is a kind with its checked description.
type openKind struct {
	Kind
	Description
	challengeSigner string
}

// NewVerifier checks the configuration and returns a verifier. An error matches
// [refusal.CheckConfig] and names the field.
func NewVerifier(c VerifierConfig) (*Verifier, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	v := &Verifier{}
	open := Opening{ClusterIDs: slices.Clone(c.Policy.ClusterIDs)}
	if slices.ContainsFunc(c.Policy.SignerNames, func(name string) bool { return csr.ProviderOf(name) == "" }) {
		open.MaxLifetime = cmp.Or(c.Policy.MaxLifetime, csr.DefaultMaxLifetime)
	}
	for n, k := range c.Kinds {
		made, err := newOpenKind(k)
		if err == nil {
			err = v.add(made, &c)
		}
		if err != nil {
			return nil, misconfigured("Kinds, number "+strconv.Itoa(n), err)
		}
		open.Roads = append(open.Roads, made.Roads...)
	}
	slices.Sort(v.signers)
	v.signers = slices.Compact(v.signers)
	for name, version := range c.MinimumVersions {
		if version < 0 || !slices.ContainsFunc(v.kinds, func(k *openKind) bool { return k.Provider == name }) {
			return nil, refusal.Config("MinimumVersions of "+refusal.Quote(name), strconv.Itoa(version), "1 or more, of a provider of Kinds")
		}
	}
	if err := CheckAuthorizer(c.Authorizer, open); err != nil {
		return nil, misconfigured("Authorizer", err)
	}
	c.Policy = c.Policy.Clone()
	c.Window = cmp.Or(c.Window, message.DefaultWindow)
	c.Now = wallclock.Or(c.Now)
	if c.Policy.Now == nil {
		c.Policy.Now = c.Now
	}
	v.c = c
	return v, nil
}

// add opens a kind for its own signers in the policy, in all versions from the minimum on.
func (v *Verifier) add(k *openKind, c *VerifierConfig) error {
	if slices.ContainsFunc(v.kinds, func(o *openKind) bool { return o.Provider == k.Provider }) {
		return errors.New("a second one of provider " + k.Provider)
	}
	k.Versions = slices.DeleteFunc(k.Versions, func(version int) bool { return version < c.MinimumVersions[k.Provider] })
	signers := slices.DeleteFunc(slices.Clone(c.Policy.SignerNames), func(name string) bool { return !k.serves(name) })
	switch {
	case len(k.Versions) == 0:
		return errors.New("no version, or none that MinimumVersions accepts")
	case len(signers) == 0:
		return errors.New("one of provider " + k.Provider + ", which has no signer among the SignerNames of the Policy")
	}
	v.kinds, v.signers = append(v.kinds, k), append(v.signers, signers...)
	return nil
}

// SignerNames returns the signers of certificates that the verifier serves, sorted: all signers of the
// policy that select one of its kinds, and Kubernetes' own signer of client certificates if it is in the
// policy. They are for [csr.CAConfig], and for a controller that watches requests by their signers.
// Hellos have other signers ([Verifier.ChallengeSigners]), and [csr.SignerKubeletServing] is not
// included, as its requests have no evidence.
func (v *Verifier) SignerNames() []string { return slices.Clone(v.signers) }

// ChallengeSigners returns the signers under which nodes file hellos ([csr.SignerChallenge]),
// in the order of the kinds.
func (v *Verifier) ChallengeSigners() []string {
	var names []string
	for _, k := range v.kinds {
		names = append(names, k.challengeSigner)
	}
	return names
}

func misconfigured(field string, err error) error {
	return &Error{Check: refusal.CheckConfig, Got: "an unusable " + field, Err: err}
}

func (c *VerifierConfig) check() error {
	switch {
	case c.KeyRing == nil:
		return refusal.Config("KeyRing", "", "one")
	case len(c.Kinds) == 0:
		return refusal.Config("Kinds", "", "at least one kind of evidence")
	case c.Policy == nil:
		return refusal.Config("Policy", "", "a node policy")
	case c.Window < 0 || c.Window > message.MaxWindow || c.Window != c.Window.Truncate(time.Second):
		return refusal.Config("Window", c.Window.String(), "whole seconds up to "+message.MaxWindow.String())
	}
	if err := c.Policy.Validate(); err != nil {
		return misconfigured("Policy", err)
	}
	return nil
}

// newOpenKind checks a kind's description.
func newOpenKind(k Kind) (*openKind, error) {
	if k == nil {
		return nil, errors.New("a nil Kind")
	}
	o := &openKind{Kind: k, Description: k.Describe()}
	o.Roads, o.Statements, o.Versions = slices.Clone(o.Roads), slices.Clone(o.Statements), slices.Clone(o.Versions)
	signer, err := csr.SignerChallenge(o.Provider)
	if err != nil {
		return nil, err
	}
	o.challengeSigner = signer
	slices.Sort(o.Versions)
	for _, version := range o.Versions {
		if _, _, err := (&csr.Bundle{Provider: formatOf(o.Provider, version)}).ProviderVersion(); err != nil {
			return nil, err
		}
	}
	if len(o.Roads) == 0 {
		return nil, errors.New("a kind without roads")
	}
	seen := map[Road]bool{}
	for n := range o.Roads {
		r := &o.Roads[n]
		r.Provider = o.Provider
		switch {
		case seen[r.Road] || r.Road < RoadAK || r.Road > RoadDocument:
			return nil, errors.New("road " + r.Road.String() + " twice, or unknown")
		case r.Machine.rank() <= Claimed.rank():
			return nil, errors.New("a machine of standing " + refusal.Quote(string(r.Machine)) + " on road " + r.Road.String() + ", want proven or asserted")
		case r.Residence != "" && r.Residence.rank() == 0:
			return nil, errors.New("a standing that evidence cannot give")
		case len(r.Identities) == 0 || slices.ContainsFunc(r.Identities, func(g Grammar) bool { return !validKind(g.Kind) }):
			return nil, errors.New("no identities on road " + r.Road.String() + ", or one of a malformed kind")
		case slices.ContainsFunc(r.Identities, func(g Grammar) bool { of, reserved := keyRoads[g.Kind]; return reserved && of != r.Road }):
			return nil, errors.New("identities " + refusal.Quotes(r.kinds()) + " on road " + r.Road.String() +
				", want none of a TPM's keys or certificates that belong to another road")
		}
		r.Identities = slices.Clone(r.Identities)
		seen[r.Road] = true
	}
	names := map[string]bool{}
	for _, l := range o.Statements {
		if names[l.Name] {
			return nil, errors.New("two statements " + refusal.Quote(l.Name))
		}
		names[l.Name] = true
		if l.Name == "" || l.Name == "secret" || l.Size < 16 || l.Size > message.HashSize {
			return nil, errors.New("a statement " + refusal.Quote(l.Name) + " over " + strconv.Itoa(l.Size) + " bytes, want 16 to 32")
		}
	}
	if !slices.ContainsFunc(o.Statements, func(l Label) bool { return !l.Optional }) {
		return nil, errors.New("no statement that must be there and cover qualifying data")
	}
	return o, nil
}

// keyRoads are the roads of the kinds of identity that [Identity] lists. Evidence on another road may
// not use them.
var keyRoads = map[string]Road{"ek": RoadEK, "ak": RoadAK, "othername": RoadAK}

// road returns the description of a road, or nil for one that is not open.
func (k *openKind) road(r Road) *OpenRoad {
	n := slices.IndexFunc(k.Roads, func(o OpenRoad) bool { return o.Road == r })
	if n < 0 {
		return nil
	}
	return &k.Roads[n]
}

func (k *openKind) fault(got, want string) error {
	return &Error{Check: CheckKind, Got: got + " from kind " + k.Provider, Want: want, Err: refusal.ErrRetry}
}

// Further checks of hellos and times.
const (
	// checkFuture: a request was created in the future. Always together with [refusal.ErrRetry].
	checkFuture Check = "request-in-the-future"
	// checkHelloSigner: a hello is not filed under a signer of certificates.
	checkHelloSigner Check = "hello-signer"
)

// errNotMade: there is no request, or no verifier.
var errNotMade = errors.New("attest: no request, or a verifier that NewVerifier did not make")

// Challenge checks a hello and returns the DER of the challenge for its node.
// The request is the object as it was filed: on Kubernetes under the challenge
// signer, elsewhere a [csr.Request] of [csr.Filed].
//
// It checks the node policy for the target signer, the request's signature, the hello's evidence as far
// as the kind can, and membership, if the authorizer has AuthorizeHello. A refusal is an [*Error] or a
// [csr.Errors]; any other error wraps [refusal.ErrRetry]. [ChallengeDecision] turns both into a
// decision. A request under the signer of a certificate, or of another party, matches
// [csr.ErrOtherSigner]: this package does not deny it.
func (v *Verifier) Challenge(ctx context.Context, request *csr.Request) ([]byte, error) {
	if request == nil {
		return nil, errNotMade
	}
	signer, parsed := request.Spec.SignerName, request.Parsed()
	if _, err := csr.PurposeOf(signer); err == nil {
		return nil, &Error{Check: checkHelloSigner, Got: refusal.Quote(signer), Want: "the challenge signer of a provider that challenges", Err: refusal.Retry(csr.ErrOtherSigner)}
	}
	kind, err := v.choose(ctx, parsed)
	if err != nil {
		return nil, err
	}
	return v.challenge(ctx, kind, parsed)
}

// challenge is Challenge for one kind.
func (v *Verifier) challenge(ctx context.Context, kind *openKind, parsed *csr.Parsed) ([]byte, error) {
	request, now := parsed.Request(), v.c.Now()
	created, err := createdAt(request, now)
	if err != nil {
		return nil, err
	}
	if now.Sub(created) > message.MaxHelloAge {
		return nil, CheckHelloExpired.Refuse("a hello of "+rfc3339(created), "one of the last "+message.MaxHelloAge.String())
	}
	bundle, err := parsed.Bundle()
	if err != nil {
		return nil, err
	}
	hello, version, err := read(kind, bundle, kind.ReadHello)
	if err != nil {
		return nil, err
	}
	head := hello.Head()
	checked, err := v.c.Policy.CheckUnsigned(ctx, parsed, head.TargetSigner)
	if err != nil {
		return nil, err
	}
	if err := v.checkRoadAndCluster(kind, head.Road, head.ClusterID); err != nil {
		return nil, err
	}
	p, err := hello.Present()
	if err != nil {
		return nil, err
	}
	r, err := v.startResult(StageHello, checked, kind, head.Road, p)
	if err != nil {
		return nil, err
	}
	r.ClusterID = head.ClusterID
	q := v.inquiry(r, version, budgetOf(helloSignatures, request), now)
	if err := q.checkSignature(ctx, checked); err != nil {
		return nil, err
	}
	found, err := hello.Trust(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := r.accept(kind, p, q, found); err != nil {
		return nil, err
	}
	// On RoadDocument a hello only claims a machine, so membership is decided at the answer.
	if r.Road != RoadDocument {
		if err := AskMembership(ctx, v.c.Authorizer, r); err != nil {
			return nil, err
		}
	}
	return v.makeChallenge(ctx, kind, bundle.Provider, hello, q, expected(r, p, request), created)
}

// read reads the evidence of one message with its kind.
func read[T any](k *openKind, bundle *csr.Bundle, parse func(*Evidence) (T, error)) (m T, version int, err error) {
	_, version, _ = bundle.ProviderVersion() // choose has checked it
	e, err := evidenceOf(bundle, version)
	if err != nil {
		return m, 0, err
	}
	if m, err = parse(e); err == nil && any(m) == nil {
		err = k.fault("no message", "one")
	}
	return m, version, err
}

func (v *Verifier) checkRoadAndCluster(k *openKind, road Road, clusterID string) error {
	if k.road(road) == nil {
		return &Error{Check: CheckBindingRoad, Got: road.String(), Want: k.Roads[0].Road.String()}
	}
	if !slices.Contains(v.c.Policy.ClusterIDs, clusterID) {
		return &Error{Check: CheckBindingCluster, Got: clusterID, Want: v.c.Policy.ClusterIDs[0]}
	}
	return nil
}

// inquiry returns the kind's inputs.
func (v *Verifier) inquiry(r *Result, version int, budget *Budget, now time.Time) *Inquiry {
	return &Inquiry{Now: now, Version: version, Machine: r.checked.Machine(), Key: r.Key, Budget: budget,
		RequireTPMResident: v.c.RequireTPMResident || r.Purpose == csr.PurposeRecovery}
}

// checkSignature checks that the request is signed with its own key.
func (q *Inquiry) checkSignature(ctx context.Context, checked *csr.Checked) error {
	if err := q.Budget.Signature(ctx); err != nil {
		return err
	}
	return checked.CheckSignature()
}

// startResult makes a result from request and evidence. A kind must present a machine on the road of
// the message.
func (v *Verifier) startResult(stage Stage, checked *csr.Checked, k *openKind, road Road, p *Presented) (*Result, error) {
	if p == nil || p.Road != road || len(p.MachineKey) == 0 || (len(p.AKName) > 0) != (road == RoadEK) {
		return nil, k.fault("a machine of another road", road.String())
	}
	r, pkcs10 := NewResult(stage, checked), checked.PKCS10()
	r.Provider, r.Road, r.MachineKey = k.Provider, road, sha256.Sum256(p.MachineKey)
	r.RequestHash, r.Key, r.ClaimedProviderID = pkcs10.InfoHash, pkcs10.CSR.PublicKey, checked.ClaimedProviderID()
	return r, nil
}
