package attest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// Times of the join.
const (
	// DefaultWindow is how long a challenge can be answered.
	DefaultWindow = 10 * time.Minute
	// MaxWindow is the longest that a window may be set to, and the longest that a
	// node accepts.
	MaxWindow = time.Hour
	// MaxHelloAge is how old a hello may be when it is challenged.
	MaxHelloAge = 5 * time.Minute
	// MaxAnswerAge is how old an answer may be when it is verified.
	MaxAnswerAge = time.Hour

	clockSkew = 60 * time.Second
)

// VerifierConfig is what a [Verifier] is made of. The fields of the first group
// have no default: leaving one out is an error. Of Issuers and EKs at least one must
// be there: a road that has nothing to trust is closed.
type VerifierConfig struct {
	// ClusterIDs are the names of the one cluster that the verifier serves: one,
	// or several while a CA is being rotated. Each is 1 to [MaxClusterIDSize]
	// bytes.
	ClusterIDs []string
	// KeyRing holds the challenge keys.
	KeyRing *KeyRing
	// Issuers are the issuers of AK certificates that are trusted. They open
	// [RoadAK].
	Issuers []Issuer
	// EKs decides which EKs are trusted. It opens [RoadEK].
	EKs *EKVerifier
	// Policy is the node policy. Its signer names are the target signers. It is copied.
	Policy *csr.Policy
	// Authorizer decides about membership. An [AuthorizerChecker] is asked whether it
	// fits the roads that are open.
	Authorizer Authorizer

	// ChallengeSigner is the signer name under which hellos are filed; empty
	// means [csr.SignerChallengeTPM].
	ChallengeSigner string
	// Window is how long a challenge can be answered, at most [MaxWindow]; zero
	// means [DefaultWindow].
	Window time.Duration
	// RequireTPMResident refuses keys that do not live in the TPM.
	RequireTPMResident bool
	// QuotePolicy, if set, decides about what each node booted; an answer without a
	// quote is then refused. Nil means that a quote is verified where one comes along,
	// and nothing more is asked: the Authorizer finds it in Result.Measured.
	QuotePolicy QuotePolicy
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Verifier is the control plane's side: it challenges hellos and verifies
// answers. It keeps no state between the two but the key ring, so that any
// replica verifies what another one challenged. It is made once and is safe for
// use from many goroutines.
type Verifier struct {
	clusterIDs      []string
	ring            *KeyRing
	issuers         []*issuer
	eks             *EKVerifier
	policy          *csr.Policy
	authorizer      Authorizer
	challengeSigner string
	window          time.Duration
	requireResident bool
	quotePolicy     QuotePolicy
	allowSHA1       bool
	now             func() time.Time
	worked          func(*work) // for tests: is given the work of each request
}

// NewVerifier checks the configuration and returns a verifier. The error names
// the field.
func NewVerifier(c *VerifierConfig) (*Verifier, error) {
	if err := checkConfig(c); err != nil {
		return nil, fmt.Errorf("attest: verifier: %w", err)
	}
	v := &Verifier{
		clusterIDs:      slices.Clone(c.ClusterIDs),
		ring:            c.KeyRing,
		eks:             c.EKs,
		policy:          c.Policy.Clone(),
		authorizer:      c.Authorizer,
		challengeSigner: c.ChallengeSigner,
		window:          c.Window,
		requireResident: c.RequireTPMResident,
		quotePolicy:     c.QuotePolicy,
		now:             c.Now,
	}
	if err := checkOtherNames(c.Issuers); err != nil {
		return nil, fmt.Errorf("attest: verifier: %w", err)
	}
	known := newLinkMemory()
	for n := range c.Issuers {
		i, err := newIssuer(&c.Issuers[n], known)
		if err != nil {
			return nil, fmt.Errorf("attest: verifier: issuer %d: %w", n, err)
		}
		v.issuers = append(v.issuers, i)
		v.allowSHA1 = v.allowSHA1 || i.profile.InsecureAllowSHA1Signature
	}
	if v.challengeSigner == "" {
		v.challengeSigner = csr.SignerChallengeTPM
	}
	if v.window == 0 {
		v.window = DefaultWindow
	}
	if v.now == nil {
		v.now = time.Now
	}
	return v, nil
}

func checkConfig(c *VerifierConfig) error {
	switch {
	case c == nil:
		return errors.New("no configuration")
	case len(c.ClusterIDs) == 0:
		return errors.New("no ClusterIDs")
	case c.KeyRing == nil || c.KeyRing.state.Load() == nil:
		return errors.New("no KeyRing, or one that NewKeyRing did not make")
	case len(c.Issuers) == 0 && c.EKs == nil:
		return errors.New("neither Issuers nor EKs: no road is open")
	case c.Policy == nil:
		return errors.New("no Policy")
	case !validChallengeSigner(c.ChallengeSigner):
		return fmt.Errorf("a ChallengeSigner of %q, want one of csr.SignerChallenge", c.ChallengeSigner)
	case c.Window < 0 || c.Window > MaxWindow || c.Window != c.Window.Truncate(time.Second):
		return fmt.Errorf("a Window of %s, want whole seconds up to %s", c.Window, MaxWindow)
	}
	if err := c.Policy.Validate(); err != nil {
		return fmt.Errorf("in Policy: %w", err)
	}
	if err := CheckAuthorizer(c.Authorizer, c.openRoads()); err != nil {
		return fmt.Errorf("in Authorizer: %w", err)
	}
	for _, id := range c.ClusterIDs {
		if err := checkText("binding", "clusterID", id, 1, MaxClusterIDSize); err != nil {
			return fmt.Errorf("in ClusterIDs: %w", err)
		}
	}
	return nil
}

func (c *VerifierConfig) openRoads() *OpenRoads {
	roads := &OpenRoads{EK: c.EKs != nil}
	for n := range c.Issuers {
		roads.AK = append(roads.AK, c.Issuers[n].Profile.clone())
	}
	return roads
}

// validChallengeSigner reports whether a name, if there is one, is that of a signer
// for hellos.
func validChallengeSigner(name string) bool {
	if name == "" {
		return true
	}
	provider := strings.TrimPrefix(name, strings.TrimSuffix(csr.SignerChallengeTPM, "tpm"))
	want, err := csr.SignerChallenge(provider)
	return err == nil && want == name
}

// Checks of the evidence's frame, on both sides of the challenge.
const (
	// CheckProvider: the request carries no evidence, or evidence of a provider
	// or version that this verifier does not speak.
	CheckProvider Check = "provider"
	// CheckStatements: the bundle does not hold exactly the statements of a hello
	// or of an answer, in their order.
	CheckStatements Check = "bundle-statements"
	// CheckHelloSigner: a request is filed under another signer name than the one
	// for challenges. It is somebody else's to decide: always together with
	// [csr.ErrRetry].
	CheckHelloSigner Check = "hello-signer"
	// CheckHelloExpired: a hello is older than [MaxHelloAge]. The node files
	// again.
	CheckHelloExpired Check = "hello-expired"
	// CheckFuture: a request was created in the future. Always together with
	// [csr.ErrRetry].
	CheckFuture Check = "request-in-the-future"
)

// Challenge checks a hello and returns the DER of the [Challenge] for its node.
// The request is the object as it was filed: on Kubernetes under the challenge
// signer, elsewhere a [csr.Request] with the same fields.
//
// It checks the node policy for the target signer, the request's signature, the
// AK's attributes, the certificate of the AK or the trust in the EK, and membership as
// far as it is known. On [RoadEK] the secret of the challenge is in a credential for
// that EK and the AK's Name, made with parameters that follow from the kind of the EK
// alone. A
// refusal is an [*Error] or a [csr.Errors]; what could not be decided wraps
// [csr.ErrRetry]. [csr.Decide] turns the error into a decision; a challenge becomes
// one by [ChallengeDecision].
func (v *Verifier) Challenge(ctx context.Context, request *csr.Request) ([]byte, error) {
	return v.challenge(ctx, request.Parsed())
}

func (v *Verifier) challenge(ctx context.Context, parsed *csr.Parsed) ([]byte, error) {
	request := parsed.Request()
	if request == nil || v == nil || v.now == nil {
		return nil, errNotMade
	}
	now, w := v.now(), v.newWork(MaxHelloSignatures)
	created, err := v.checkHelloObject(request, now)
	if err != nil {
		return nil, err
	}
	hello, certificates, err := readHelloOf(parsed)
	if err != nil {
		return nil, err
	}
	checked, err := v.policy.CheckUnsigned(ctx, parsed, hello.TargetSigner)
	if err != nil {
		return nil, err
	}
	if err := v.checkRoadAndCluster(hello.Road, hello.ClusterID); err != nil {
		return nil, err
	}
	node, err := readNode(hello.Road, hello.AKPublic, hello.EKPublic, certificates)
	if err != nil {
		return nil, err
	}
	if err := checkAKPublic(node.akPublic); err != nil {
		return nil, err
	}
	if err := w.signature(ctx); err != nil {
		return nil, err
	}
	if err := checked.CheckSignature(); err != nil {
		return nil, err
	}
	r := v.startResult(StageHello, checked, hello.TargetSigner, node)
	if err := v.trust(ctx, w, node, r, now); err != nil {
		return nil, err
	}
	if err := v.authorize(ctx, r, request); err != nil {
		return nil, err
	}
	return v.makeChallenge(ctx, w, r, node, v.expected(r, request, hello.ClusterID), created, now)
}

// checkHelloObject checks signer name and age, and returns the time of creation.
func (v *Verifier) checkHelloObject(request *csr.Request, now time.Time) (time.Time, error) {
	if request.Spec.SignerName != v.challengeSigner {
		return time.Time{}, &Error{Check: CheckHelloSigner, Got: request.Spec.SignerName, Want: v.challengeSigner, Err: csr.ErrRetry}
	}
	created, err := createdAt(request, now)
	if err != nil {
		return time.Time{}, err
	}
	if age := now.Sub(created); age > MaxHelloAge {
		return time.Time{}, &Error{Check: CheckHelloExpired, Got: "a hello of " + created.UTC().Format(time.RFC3339),
			Want: "one of the last " + MaxHelloAge.String()}
	}
	return created, nil
}

// readHelloOf reads the hello out of spec.request.
func readHelloOf(request *csr.Parsed) (*Hello, [][]byte, error) {
	bundle, err := request.Bundle()
	if err != nil {
		return nil, nil, err
	}
	evidence, err := readEvidence(bundle)
	if err != nil {
		return nil, nil, err
	}
	if len(evidence.Statements) != 1 || evidence.Statements[0].Type != oid.NodeAttestHello {
		return nil, nil, &Error{Check: CheckStatements, Got: statementTypes(evidence), Want: "one hello"}
	}
	hello, err := ParseHello(evidence.Statements[0].Stmt)
	if err != nil {
		return nil, nil, err
	}
	return hello, evidence.Certificates, nil
}

// readEvidence checks the provider block and reads the bundle.
func readEvidence(bundle *csr.Bundle) (*AttestationBundle, error) {
	if bundle.Provider != Provider {
		got := "a request without evidence"
		if bundle.Provider != "" {
			got = "evidence of " + bundle.Provider
		}
		return nil, &Error{Check: CheckProvider, Got: got, Want: Provider}
	}
	return ParseAttestationBundle(bundle.Data)
}

func statementTypes(b *AttestationBundle) string {
	out := ""
	for n, s := range b.Statements {
		if n > 0 {
			out += ", "
		}
		if name := s.Type.Name(); name != "" {
			out += name
		} else {
			out += s.Type.String()
		}
	}
	return out
}

func (v *Verifier) checkRoadAndCluster(road Road, clusterID string) error {
	if road == RoadAK && len(v.issuers) == 0 {
		return &Error{Check: CheckBindingRoad, Got: road.String(), Want: RoadEK.String()}
	}
	if road == RoadEK && v.eks == nil {
		return &Error{Check: CheckBindingRoad, Got: road.String(), Want: RoadAK.String()}
	}
	if !slices.Contains(v.clusterIDs, clusterID) {
		return &Error{Check: CheckBindingCluster, Got: clusterID, Want: v.clusterIDs[0]}
	}
	return nil
}

// makeChallenge adds key, nonce and times to what is known, and the secret. On road
// EK the secret leaves here in the credential alone.
func (v *Verifier) makeChallenge(ctx context.Context, w *work, r *Result, node *presentedNode, b *Binding, created, now time.Time) ([]byte, error) {
	key, err := v.ring.newest(now)
	if err != nil {
		return nil, err
	}
	b.KeyID = key.ID
	_, _ = rand.Read(b.Nonce[:]) // never fails
	b.IssuedAt = created.Unix()
	b.NotAfter = created.Add(v.window).Unix()
	der, err := b.Marshal()
	if err != nil {
		return nil, err
	}
	c := &Challenge{Binding: *b}
	secret := challengeSecret(key, der)
	if r.Road == RoadAK {
		c.Clear = secret
		return c.Marshal()
	}
	if err := w.encryption(ctx); err != nil {
		return nil, err
	}
	if c.Credential, err = makeCredential(rand.Reader, node.ek.key, b.AKName, secret); err != nil {
		return nil, err
	}
	return c.Marshal()
}

// expected is the Binding as the verifier knows it: everything but key, nonce
// and times.
func (v *Verifier) expected(r *Result, request *csr.Request, clusterID string) *Binding {
	b := &Binding{
		Road:        r.Road,
		ClusterID:   clusterID,
		SignerName:  r.SignerName,
		Requester:   request.Spec.Username,
		MachineKey:  r.MachineKey,
		RequestHash: r.RequestHash,
	}
	if r.Road == RoadEK {
		b.AKName = r.AKPublic.Name()
	}
	if s := request.Spec.ExpirationSeconds; s != nil {
		b.ExpirationSeconds = *s
	}
	return b
}

func (v *Verifier) startResult(stage Stage, checked *csr.Checked, signerName string, node *presentedNode) *Result {
	return &Result{
		Stage:             stage,
		Road:              node.road,
		MachineKey:        node.machineKey,
		NodeName:          checked.NodeName(),
		SignerName:        signerName,
		Purpose:           checked.Purpose(),
		RequestHash:       checked.PKCS10().InfoHash,
		ClaimedProviderID: checked.ClaimedProviderID(),
		AKPublic:          node.akPublic,
		checked:           checked,
	}
}
