package attest

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/asn1"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// fakeMessage is the one statement of a fake kind's evidence. Nothing in it is signed.
type fakeMessage struct {
	Road                       int
	ClusterID, Target, Machine string `asn1:"utf8"`
	AKName, Binding            []byte
	Values                     []fakeValue
}

type fakeValue struct {
	Label string `asn1:"utf8"`
	Bytes []byte
}

func (m *fakeMessage) evidence() (*Evidence, error) {
	der, err := asn1.Marshal(*m)
	return &Evidence{Version: 1, Statements: []Statement{{Type: oid.NodeAttestDocument, DER: der}}}, err
}

func (m *fakeMessage) present() *Presented {
	return &Presented{Road: Road(m.Road), MachineKey: []byte("key of " + m.Machine), AKName: m.AKName, Machine: Identity(m.Machine)}
}

// fakeKind is a kind of evidence that verifies nothing, and can do one thing wrong.
type fakeKind struct {
	describe func(*Description)
	// hello and answer replace the kind's result; nil changes nothing.
	hello   func(*fakeEvidence) HelloEvidence
	answer  func(*fakeEvidence) AnswerEvidence
	present func(Stage, *Presented) *Presented
	find    func(Stage, *Inquiry, *Findings) *Findings
	seal    func(secret []byte) *Credential
	fails   string // the method that returns errFake

	asked    []string // the methods that were called
	versions []int    // of the evidence that was read
}

var errFake = &Error{Check: "fake", Got: "a fake", Want: "none"}

// Describe opens the road of documents for one statement of all 32 bytes.
func (k *fakeKind) Describe() Description {
	d := Description{Provider: "fake", Versions: []int{1}, Statements: []Label{{Name: "document", Size: 32}},
		Roads: []OpenRoad{{Road: RoadDocument, Identities: []Grammar{{Kind: "fake"}}, Machine: Asserted}}}
	if k.describe != nil {
		k.describe(&d)
	}
	return d
}

func (k *fakeKind) call(method string) error {
	k.asked = append(k.asked, method)
	if k.fails == method {
		return errFake
	}
	return nil
}

func (k *fakeKind) read(stage Stage, e *Evidence) (*fakeEvidence, error) {
	if err := k.call("Read " + stage.String()); err != nil {
		return nil, err
	}
	k.versions = append(k.versions, e.Version)
	m := &fakeEvidence{kind: k, stage: stage}
	if _, err := asn1.Unmarshal(e.Statements[0].DER, &m.fakeMessage); err != nil {
		return nil, &Error{Check: der.CheckEncoding, Err: err}
	}
	return m, nil
}

func (k *fakeKind) ReadHello(e *Evidence) (HelloEvidence, error) {
	m, err := k.read(StageHello, e)
	if err != nil || k.hello == nil {
		return m, err
	}
	return k.hello(m), nil
}

func (k *fakeKind) ReadAnswer(e *Evidence) (AnswerEvidence, error) {
	m, err := k.read(StageAnswer, e)
	if err != nil || k.answer == nil {
		return m, err
	}
	return k.answer(m), nil
}

// fakeEvidence is the evidence of a hello or an answer.
type fakeEvidence struct {
	fakeMessage
	kind  *fakeKind
	stage Stage
}

func (m *fakeEvidence) Head() Head {
	return Head{Road: Road(m.Road), ClusterID: m.ClusterID, TargetSigner: m.Target}
}

func (m *fakeEvidence) Binding() []byte { return m.fakeMessage.Binding }

func (m *fakeEvidence) Present() (*Presented, error) {
	p := m.present()
	if m.kind.present != nil {
		p = m.kind.present(m.stage, p)
	}
	return p, m.kind.call("Present")
}

func (m *fakeEvidence) Trust(_ context.Context, q *Inquiry) (*Findings, error) {
	return m.findings(q), m.kind.call("Trust")
}

func (m *fakeEvidence) Seal(_ context.Context, _ *Inquiry, secret []byte) (*Credential, error) {
	if err := m.kind.call("Seal"); err != nil {
		return nil, err
	}
	if m.kind.seal != nil {
		return m.kind.seal(secret), nil
	}
	if Road(m.Road) != RoadEK {
		return nil, nil
	}
	return fakeCredential(secret), nil
}

// fakeCredential returns a credential that any machine opens.
func fakeCredential(secret []byte) *Credential {
	return &Credential{IDObject: bytes.Clone(secret), EncryptedSecret: []byte{1}}
}

func (m *fakeEvidence) Check(q *Inquiry) error {
	if err := m.kind.call("Check"); err != nil {
		return err
	}
	for _, v := range m.Values {
		if err := q.Covers(v.Label, v.Bytes); err != nil {
			return err
		}
	}
	return nil
}

func (m *fakeEvidence) Verify(_ context.Context, q *Inquiry) (*Findings, error) {
	return m.findings(q), m.kind.call("Verify")
}

func (m *fakeEvidence) findings(q *Inquiry) *Findings {
	f := &Findings{Machine: Identity(m.Machine), MachineStanding: Asserted}
	f.Values = map[string][]byte{}
	for _, v := range m.Values {
		f.Values[v.Label] = v.Bytes
	}
	if m.kind.find != nil {
		f = m.kind.find(m.stage, q, f)
	}
	return f
}

// fakeProver is the node's side of a fakeKind.
type fakeProver struct {
	provider string
	version  int // 0 for 1
	road     Road
	machine  string
	labels   []string
	// open opens a credential; nil opens one of fakeCredential.
	open     func(*Credential) ([]byte, error)
	evidence func(Stage, *Evidence) *Evidence
	presents error
	closes   error

	asked      []string
	challenged *Challenged
	key        crypto.Signer
}

func newFakeProver() *fakeProver {
	return &fakeProver{provider: "fake", road: RoadDocument, machine: "fake:m1", labels: []string{"document"}}
}

func (p *fakeProver) Provider() string { return p.provider }

func (p *fakeProver) Version() int { return cmp.Or(p.version, 1) }

func (p *fakeProver) Close() error { return p.closes }

func (p *fakeProver) Use(_ context.Context, stage Stage, f func(Session) error) error {
	p.asked = append(p.asked, "Use "+stage.String())
	err := f(p)
	p.asked = append(p.asked, "used")
	return err
}

func (p *fakeProver) message() *fakeMessage {
	m := &fakeMessage{Road: int(p.road), Machine: p.machine}
	if p.road == RoadEK {
		m.AKName = append([]byte{0, 0x0b}, make([]byte, 32)...)
	}
	return m
}

func (p *fakeProver) Present() (*Presented, error) {
	p.asked = append(p.asked, "Present")
	return p.message().present(), p.presents
}

func (p *fakeProver) Hello(_ context.Context, h Head) (*Evidence, error) {
	p.asked = append(p.asked, "Hello")
	m := p.message()
	m.ClusterID, m.Target = h.ClusterID, h.TargetSigner
	return p.made(StageHello, m)
}

func (p *fakeProver) Open(_ context.Context, c *Credential) ([]byte, error) {
	p.asked = append(p.asked, "Open")
	if p.open != nil {
		return p.open(c)
	}
	return c.IDObject, nil
}

func (p *fakeProver) Answer(_ context.Context, key crypto.Signer, c *Challenged) (*Evidence, error) {
	p.asked = append(p.asked, "Answer")
	p.challenged, p.key = c, key
	m := p.message()
	m.Binding = c.Binding()
	for _, l := range p.labels {
		m.Values = append(m.Values, fakeValue{l, c.QualifyingData(l)})
	}
	return p.made(StageAnswer, m)
}

func (p *fakeProver) made(stage Stage, m *fakeMessage) (*Evidence, error) {
	e, err := m.evidence()
	if p.evidence != nil {
		e = p.evidence(stage, e)
	}
	return e, err
}

// fakeNow is the time of all fake joins.
var fakeNow = ringTime

// fakeNode is a node with fake evidence.
type fakeNode struct {
	prover   *fakeProver
	attester *Attester
	key      *ecdsa.PrivateKey
	subject  Subject
	username string
}

func newFakeNode(t testing.TB, p *fakeProver) *fakeNode {
	t.Helper()
	n := &fakeNode{prover: p, key: newFakeKey(t), username: csr.BootstrapUserPrefix + "abcdef"}
	n.attester = testkit.Must(NewAttester(p))
	request := testkit.Must(csr.Create(csr.PurposeClient, n.key, "node-1", csr.CreateOptions{}))
	signer := testkit.Must(csr.PurposeClient.SignerName(p.provider))
	n.subject = Subject{Request: request, SignerName: signer, ClusterID: "cluster-1", ExpirationSeconds: 3600}
	return n
}

func newFakeKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	return key
}

// object returns the request object of a spec.
func (n *fakeNode) object(spec *csr.Spec) *csr.Request {
	return csr.Filed(spec, csr.User{Username: n.username, Groups: []string{"system:bootstrappers", "system:authenticated"}}, fakeNow)
}

func (n *fakeNode) hello(t testing.TB) *csr.Request {
	t.Helper()
	spec := testkit.Must(n.attester.Hello(t.Context(), n.subject))
	return n.object(spec)
}

// challenge is one that this node answers, made without a verifier.
func (n *fakeNode) challenge(t testing.TB) *message.Challenge {
	t.Helper()
	p := testkit.Must(n.prover.Present())
	parsed := testkit.Must(csr.ParsePKCS10(n.subject.Request))
	r := &Result{Road: p.Road, SignerName: n.subject.SignerName, MachineKey: hashOf(p.MachineKey), RequestHash: parsed.InfoHash, ClusterID: n.subject.ClusterID}
	b := expected(r, p, &csr.Request{User: csr.User{Username: n.username}, Spec: csr.Spec{ExpirationSeconds: &n.subject.ExpirationSeconds}})
	b.IssuedAt, b.NotAfter = fakeNow.Unix(), fakeNow.Add(time.Minute).Unix()
	c := &message.Challenge{Binding: b, Clear: bytes.Repeat([]byte{7}, message.SecretSize)}
	if p.Road == RoadEK {
		c.Clear, c.Credential = nil, &message.Credential{IDObject: c.Clear, EncryptedSecret: []byte{1}}
	}
	return c
}

// answer answers a challenge, given as DER.
func (n *fakeNode) answer(t testing.TB, challenge []byte) *csr.Request {
	t.Helper()
	spec := testkit.Must(n.attester.Answer(t.Context(), challenge, n.key, n.subject))
	return n.object(spec)
}

// fakeConfig is a configuration for nodes of fake kinds, which admits every machine.
func fakeConfig(t testing.TB, kinds ...Kind) VerifierConfig {
	t.Helper()
	ring := testkit.Must(NewStaticKeyRing(NewRingKey(fakeNow.Add(-time.Hour))))
	policy := &csr.Policy{ClusterIDs: []string{"cluster-1"}, SignerNames: []string{csr.SignerKubeAPIServerClientKubelet},
		Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: "machine-of-" + q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
		}}
	for _, k := range kinds {
		signer := testkit.Must(csr.PurposeClient.SignerName(k.Describe().Provider))
		policy.SignerNames = append(policy.SignerNames, signer)
	}
	return VerifierConfig{KeyRing: ring, Kinds: kinds, Policy: policy, Now: func() time.Time { return fakeNow },
		Authorizer: AuthorizerFunc(admitAll)}
}

// admitAll admits everybody.
func admitAll(_ context.Context, r *Result) (*Authorization, error) {
	return r.InsecureAdmitAnyone(), nil
}

// helloFunc is an authorizer with an AuthorizeHello, which admits no machine at the answer.
type helloFunc func(ctx context.Context, r *Result) error

func (f helloFunc) AuthorizeHello(ctx context.Context, r *Result) error { return f(ctx, r) }

func (helloFunc) Authorize(context.Context, *Result) (*Authorization, error) { return nil, nil }

func newFakeVerifier(t testing.TB, kinds ...Kind) *Verifier {
	t.Helper()
	v := testkit.Must(NewVerifier(fakeConfig(t, kinds...)))
	return v
}

// allRoads describes a kind that opens each road.
func allRoads(d *Description) {
	d.Roads = []OpenRoad{
		{Road: RoadAK, Identities: []Grammar{{Kind: "fake"}, {Kind: "other"}}, Machine: Asserted, Residence: Asserted},
		{Road: RoadEK, Identities: []Grammar{{Kind: "fake"}}, Machine: Proven, Residence: Proven},
		{Road: RoadDocument, Identities: []Grammar{{Kind: "fake"}}, Machine: Asserted},
	}
}

// joinFake runs a whole join, and returns the error of the first step that fails.
func joinFake(t testing.TB, v *Verifier, n *fakeNode) (*Result, error) {
	t.Helper()
	challenge, err := v.Challenge(t.Context(), n.hello(t))
	if err != nil {
		return nil, err
	}
	return v.Verify(t.Context(), n.answer(t, challenge))
}

// expectRefusal expects a refusal of one check, for good unless it is a fault of the kind;
// none for "".
func expectRefusal(t testing.TB, err error, want Check) {
	t.Helper()
	switch {
	case want == "" && err != nil, want != "" && !errors.Is(err, want):
		t.Errorf("got %v, want %q", err, want)
	case want != "" && errors.Is(err, refusal.ErrRetry) != (want == CheckKind):
		t.Errorf("%v: to be tried again: %t", err, want != CheckKind)
	}
}
