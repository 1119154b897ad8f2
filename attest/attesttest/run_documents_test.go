package attesttest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// toyDocuments are the kind of a platform of this package: the kind is given the platform,
// to be weakened.
func toyDocuments(t testing.TB, kind func(*Platform) (attest.Kind, error)) *Documents {
	t.Helper()
	source := func(p *Platform) func(string, time.Time) document.Source {
		return func(machine string, at time.Time) document.Source {
			stopped := *p
			stopped.Now = func() time.Time { return at }
			return stopped.Machine(machine)
		}
	}
	platform := NewPlatform(t)
	k, err := kind(platform)
	if err != nil {
		t.Fatal(err)
	}
	return &Documents{Kind: k, Source: source(platform), Attacker: source(NewPlatform(t))}
}

func strictKind(p *Platform) (attest.Kind, error) { return p.Kind() }

// kindOf is the kind of a weak platform.
func kindOf(weaken func(*Platform) document.Platform) func(*Platform) (attest.Kind, error) {
	return func(p *Platform) (attest.Kind, error) {
		return document.NewKind(document.KindConfig{Provider: PlatformProvider, Identities: []attest.Grammar{{Kind: PlatformProvider}},
			ValueSize: sha256.Size, Platform: weaken(p)})
	}
}

// realProvider is the provider of package attest.
func realProvider(t testing.TB, c attest.VerifierConfig) csr.Provider {
	t.Helper()
	v, err := attest.NewVerifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The toy kind passes.
func TestRunDocuments(t *testing.T) {
	w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, strictKind)})
	Run(t, realProvider(t, w.Config), w)
}

// weakPlatform is a platform whose documents are not verified as they should be.
type weakPlatform struct {
	*Platform
	verify func(ctx context.Context, d *platformDocument, data []byte, q *attest.Inquiry) (*document.Claims, error)
}

func (p *weakPlatform) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	d, err := readPlatformDocument(data)
	if err != nil {
		return nil, err
	}
	return p.verify(ctx, d, data, q)
}

// weakKind is a kind that does not compare documents with the proof before it verifies them, and may
// change its findings.
type weakKind struct {
	attest.Kind
	find func(*attest.Findings, *attest.Presented)
}

func (k *weakKind) ReadAnswer(e *attest.Evidence) (attest.AnswerEvidence, error) {
	a, err := k.Kind.ReadAnswer(e)
	return &weakAnswer{a, k.find}, err
}

type weakAnswer struct {
	attest.AnswerEvidence
	find func(*attest.Findings, *attest.Presented)
}

func (*weakAnswer) Check(*attest.Inquiry) error { return nil }

func (a *weakAnswer) Verify(ctx context.Context, q *attest.Inquiry) (*attest.Findings, error) {
	f, err := a.AnswerEvidence.Verify(ctx, q)
	if err != nil {
		return nil, err
	}
	p, err := a.Present()
	a.find(f, p)
	return f, err
}

// overAnything are the attacks whose documents are over another value than the right one.
var overAnything = []string{"document-over-another-value", "document-over-zeros", "document-over-the-first-bytes", "challenge-secret-made-up",
	"challenge-window-moved", "challenge-nonce-changed", "echo-issued-at", "echo-not-after", "echo-not-after-stretched-within-an-hour"}

// unsigned are the attacks on a kind that does not verify signatures.
var unsigned = []string{"document-forged", "document-bytes-not-covered", "document-value-replaced", "document-identity-replaced",
	"document-field-empty", "document-field-missing", "document-field-prefix", "document-field-of-one-repeated-byte", "document-field-of-another-machine"}

// TestWeakKinds: a kind that forgets one thing lets in the attacks on it, and no others.
func TestWeakKinds(t *testing.T) {
	ignoresNames := func(p *Platform) (attest.Kind, error) {
		strict, err := p.Kind()
		return &weakKind{strict, func(f *attest.Findings, p *attest.Presented) { f.Machine = p.Machine }}, err
	}
	for name, c := range map[string]struct {
		kind func(*Platform) (attest.Kind, error)
		want []string
	}{
		"signature not checked": {kindOf(func(p *Platform) document.Platform {
			return &weakPlatform{p, func(_ context.Context, d *platformDocument, _ []byte, q *attest.Inquiry) (*document.Claims, error) {
				if age := q.Now.Sub(time.Unix(d.Time, 0)); age < 0 || age > platformLifetime {
					return nil, &attest.Error{Check: checkPlatform}
				}
				return d.claims(), nil
			}}
		}), append(slices.Clone(unsigned), "budget-spent")},
		"time not checked": {kindOf(func(p *Platform) document.Platform {
			return &weakPlatform{p, func(ctx context.Context, d *platformDocument, data []byte, q *attest.Inquiry) (*document.Claims, error) {
				return p.Verify(ctx, data, &attest.Inquiry{Now: time.Unix(d.Time, 0), Budget: q.Budget})
			}}
		}), []string{"document-of-yesterday", "document-of-tomorrow"}},
		"name in the document ignored": {ignoresNames, []string{"document-of-another-machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, c.kind)})
			expectGotIn(t, realProvider(t, w.Config), w, slices.Clone(c.want))
		})
	}
}

// TestWeakControlPlanes: the toy kind in a control plane that takes more than it should.
func TestWeakControlPlanes(t *testing.T) {
	for name, c := range map[string]struct {
		weaken func(*testing.T, *World)
		want   []string
	}{
		"another cluster": {func(_ *testing.T, w *World) {
			w.Config.Policy.ClusterIDs = []string{ClusterID, "other"}
			w.ca, _ = newClusterCA(w.Config.Policy)
		}, []string{"answer-for-another-cluster"}},
		"a retired key": {func(t *testing.T, w *World) {
			key := w.retired
			key.RetiredAt = time.Time{}
			var err error
			if w.Config.KeyRing, err = attest.NewStaticKeyRing(w.ring, key); err != nil {
				t.Fatal(err)
			}
		}, []string{"challenge-key-retired"}},
		"everybody": {func(_ *testing.T, w *World) {
			w.Config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
				a := r.InsecureAdmitAnyone()
				a.ProviderID, a.DNSNames, a.IPAddresses = ProviderID, w.known[NodeName].DNSNames, w.known[NodeName].IPAddresses
				return a, nil
			})
		}, []string{"stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine"}},
		"an inventory that keeps something back": {func(_ *testing.T, w *World) {
			w.Config.Policy.Machines = func(ctx context.Context, q csr.Question) (*csr.Machine, error) {
				m, err := w.machine(ctx, q)
				if m != nil {
					known := *m
					m, known.Identity, known.Provider = &known, "", ""
				}
				return m, err
			}
		}, []string{"inventory-of-another-machine", "inventory-of-another-provider"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, strictKind)})
			c.weaken(t, w)
			expectGotIn(t, realProvider(t, w.Config), w, c.want)
		})
	}
}

// naive verifies answers as plainly as can be, one check after the other, and
// forgets one. It shares no check with packages attest and document.
type naive struct {
	w        *World
	forget   map[string]bool
	policy   *csr.Policy
	platform *Platform
}

// naiveRefusal is a refusal by one check.
type naiveRefusal string

func (r naiveRefusal) Error() string      { return "naive: " + string(r) }
func (r naiveRefusal) DenyReason() string { return "Naive" }

// must is a check: it fails unless ok, or forgotten.
func (n *naive) must(check string, ok bool) error {
	if ok || n.forget[check] {
		return nil
	}
	return naiveRefusal(check)
}

func (n *naive) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	return a.InventoryName()
}

func (n *naive) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return n.verify(ctx, r)
}

func (n *naive) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return n.verify(ctx, r)
}

func (n *naive) verify(ctx context.Context, parsed *csr.Parsed) (*csr.Attested, error) {
	checked, err := n.policy.Check(ctx, parsed)
	if err != nil {
		if n.forget["retry"] && errors.Is(err, refusal.ErrRetry) {
			return nil, naiveRefusal("retry")
		}
		return nil, err
	}
	bundle := checked.Bundle()
	if err := n.must("version", bundle.Provider == PlatformProvider+"/v1"); err != nil {
		return nil, err
	}
	evidence, err := message.ParseBundle(bundle.Data)
	if err != nil {
		return nil, naiveRefusal("bundle")
	}
	a, err := n.readDocuments(evidence.Statements)
	if err != nil {
		return nil, err
	}
	a.checked, a.request = checked, parsed.Request()
	for _, step := range []func(*documentAnswer) error{n.checkBinding, n.checkValue, n.checkDocument} {
		if err := step(a); err != nil {
			return nil, err
		}
	}
	m := checked.Machine()
	if err := n.must("membership", n.w.Member(checked.NodeName(), a.proof.Machine[len(PlatformProvider)+1:]) == nil); err != nil {
		return nil, err
	}
	return checked.Vouch(a.proof.Machine, csr.Grant{ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}, nil), nil
}

// documentAnswer is a parsed answer.
type documentAnswer struct {
	checked *csr.Checked
	request *csr.Request
	proof   *document.Proof
	binding *message.Binding
	signed  *platformDocument
}

func (n *naive) readDocuments(statements []message.Statement) (*documentAnswer, error) {
	a := &documentAnswer{}
	right := len(statements) == 2 && statements[0].Type == oid.NodeAttestDocumentProof
	if err := n.must("statements", right); err != nil {
		return nil, err
	}
	for _, s := range statements {
		var err error
		switch s.Type {
		case oid.NodeAttestDocumentProof:
			a.proof, err = document.ParseProof(s.Stmt)
		case oid.NodeAttestDocument:
			var data []byte
			if data, err = document.ParseStatement(s.Stmt); err == nil {
				a.signed, err = readPlatformDocument(data)
			}
		}
		if err != nil {
			return nil, naiveRefusal("statement")
		}
	}
	if a.proof == nil || a.signed == nil {
		return nil, naiveRefusal("statements")
	}
	var err error
	a.binding, err = message.ParseBinding(a.proof.Binding)
	return a, err
}

func (n *naive) checkBinding(a *documentAnswer) error {
	b, created := a.binding, a.request.Metadata.CreationTimestamp
	return errors.Join(
		n.must("cluster", b.ClusterID == ClusterID),
		n.must("signer", b.SignerName == a.request.Spec.SignerName),
		n.must("requester", b.Requester == a.request.User.Username),
		n.must("lifetime", b.ExpirationSeconds == 0 == (a.request.Spec.ExpirationSeconds == nil)),
		n.must("machine-key", b.MachineKey == sha256.Sum256([]byte("nodeattest machine\x00"+a.proof.Machine))),
		n.must("request", b.RequestHash == a.checked.PKCS10().InfoHash),
		n.must("window", b.NotAfter >= b.IssuedAt && b.NotAfter <= b.IssuedAt+3600),
		n.must("late", !created.After(b.Expires())),
		n.must("early", !created.Before(b.Issued().Add(-time.Minute))),
		n.must("old", n.w.Now().Sub(created) <= time.Hour))
}

func (n *naive) checkValue(a *documentAnswer) error {
	key := n.w.ring
	retired := a.binding.KeyID == n.w.retired.ID
	if retired {
		key = n.w.retired
	}
	if err := errors.Join(n.must("retired-key", !retired), n.must("unknown-key", a.binding.KeyID == key.ID)); err != nil {
		return err
	}
	if a.binding.KeyID != key.ID {
		return nil // forgotten
	}
	want := message.QualifyingData(message.Secret(secretOf(key), PlatformProvider+"/v1", a.proof.Binding), PlatformProvider+"/v1", "document", a.proof.Binding)
	got := a.signed.Value
	if n.forget["value-length"] {
		got, want = got[:8], want[:8]
	}
	return n.must("value", bytes.Equal(got, want))
}

func (n *naive) checkDocument(a *documentAnswer) error {
	age := n.w.Now().Sub(time.Unix(a.signed.Time, 0))
	return errors.Join(
		n.must("machine", PlatformProvider+":"+a.signed.Machine == a.proof.Machine),
		n.must("fresh", age <= platformLifetime),
		n.must("future", age >= 0),
		n.must("signature", ed25519.Verify(n.platform.key.Public().(ed25519.PublicKey), a.signed.signed(), a.signed.Signature)))
}

// Challenge is the real one: it is answers that this provider is naive about.
func (n *naive) Challenge(ctx context.Context, r *csr.Request) ([]byte, error) {
	v, err := attest.NewVerifier(n.w.Config)
	if err != nil {
		return nil, err
	}
	return v.Challenge(ctx, r)
}

func newNaive(t testing.TB, forget ...string) (*naive, *World) {
	t.Helper()
	n := &naive{forget: map[string]bool{}}
	w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, func(p *Platform) (attest.Kind, error) {
		n.platform = p
		return p.Kind()
	})})
	for _, f := range forget {
		n.forget[f] = true
	}
	n.w, n.policy = w, w.Config.Policy
	return n, w
}

// TestWeakDocumentProviders has a provider forget one check, and counts on the runner to
// name the attacks that this lets in: these and no others.
func TestWeakDocumentProviders(t *testing.T) {
	for check, want := range map[string][]string{
		"nothing":     nil,
		"version":     {"provider-version-unknown", "provider-version-annotated"},
		"statements":  {"statements-reversed", "statement-unknown", "document-twice"},
		"cluster":     {"answer-for-another-cluster"},
		"signer":      {"answer-for-another-signer"},
		"requester":   {"answer-of-another-requester"},
		"lifetime":    {"answer-for-another-lifetime"},
		"machine-key": {"answer-of-another-machine-key"},
		"request":     {"answer-for-another-request", "evidence-of-another-key"},
		"window":      {"challenge-window-stretched", "challenge-window-reversed"},
		"late":        {"answer-late"},
		"early":       {"answer-early"},
		"old":         {"answer-old"},
		"retired-key": {"challenge-key-retired"},
		"unknown-key": {"challenge-key-unknown", "echo-key-id-unknown"},
		"value":       overAnything,
		// It panics where the value has fewer than 8 bytes.
		"value-length": {"document-over-the-first-bytes", "document-field-empty", "document-field-missing", "document-field-prefix"},
		"machine":      {"document-of-another-machine"},
		"fresh":        {"document-of-yesterday"},
		"future":       {"document-of-tomorrow"},
		"signature":    unsigned,
		"membership":   {"stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine"},
		"retry":        {"inventory-down"},
	} {
		t.Run(check, func(t *testing.T) {
			n, w := newNaive(t, check)
			expectGotIn(t, n, w, slices.Clone(want))
		})
	}
}

func secretOf(k attest.RingKey) []byte {
	key := k.Secret.Reveal()
	return key[:]
}
