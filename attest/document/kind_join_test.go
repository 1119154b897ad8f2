package document_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// now is the time of all joins here.
var now = time.Unix(1_800_000_000, 0).UTC()

// join is a control plane and a node whose evidence is a platform's documents, each with
// something that can be changed before it is used.
type join struct {
	platform *spy
	kind     document.KindConfig
	config   attest.VerifierConfig
	source   *source
	tamper   func(stage attest.Stage, e *attest.Evidence)
	subject  attest.Subject
	key      *ecdsa.PrivateKey
	username string
	asked    []attest.Stage // when membership was asked about
	refuse   bool           // the machine is no member
}

// spy is a platform that returns claims other than the document's.
type spy struct {
	*attesttest.Platform
	read, verify func(*document.Claims) (*document.Claims, error)
	verified     int
	now          time.Time
	budget       *attest.Budget
	version      int
}

func (s *spy) Read(data []byte) (*document.Claims, error) {
	claims, err := s.Platform.Read(data)
	if err == nil && s.read != nil {
		return s.read(claims)
	}
	return claims, err
}

func (s *spy) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	s.verified, s.now = s.verified+1, q.Now
	claims, err := s.Platform.Verify(ctx, data, q)
	s.budget, s.version = q.Budget, q.Version
	if err == nil && s.verify != nil {
		return s.verify(claims)
	}
	return claims, err
}

// source is a machine that may request a document over another value.
type source struct {
	platform *attesttest.Platform
	identity attest.Identity // that it claims
	name     string          // whose documents it gets
	value    func([]byte) []byte
	document func([]byte) []byte
	fails    string
}

var errSource = errors.New("no platform")

func (s *source) Machine(context.Context) (attest.Identity, error) {
	if s.fails == "Machine" {
		return "", errSource
	}
	return s.identity, nil
}

func (s *source) Document(_ context.Context, value []byte) ([]byte, error) {
	if s.fails == "Document" {
		return nil, errSource
	}
	if s.value != nil {
		value = s.value(value)
	}
	data, err := s.platform.Sign(s.name, value)
	if s.document != nil {
		data = s.document(data)
	}
	return data, err
}

func newJoin(t *testing.T) *join {
	t.Helper()
	platform := attesttest.NewPlatform(t)
	platform.Now = func() time.Time { return now }
	j := &join{platform: &spy{Platform: platform}, source: &source{platform: platform, identity: "platform:m1", name: "m1"}}
	j.kind = document.KindConfig{Provider: attesttest.PlatformProvider, Identities: []attest.Grammar{{Kind: "platform"}}, ValueSize: 32, Platform: j.platform}
	ring := testkit.Must(attest.NewStaticKeyRing(attest.NewRingKey(now.Add(-time.Hour))))
	signer := testkit.Must(csr.PurposeClient.SignerName(attesttest.PlatformProvider))
	j.config = attest.VerifierConfig{KeyRing: ring, Now: func() time.Time { return now },
		Policy: &csr.Policy{ClusterIDs: []string{"cluster-1"}, SignerNames: []string{signer}, Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: "machine-of-" + q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			j.asked = append(j.asked, r.Stage)
			if j.refuse {
				return nil, attest.NotMember("not listed")
			}
			return r.InsecureAdmitAnyone(), nil
		})}
	j.key = testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	j.subject = attest.Subject{SignerName: signer, ClusterID: "cluster-1", ExpirationSeconds: 3600}
	j.subject.Request = testkit.Must(csr.Create(csr.PurposeClient, j.key, "node-1", csr.CreateOptions{}))
	j.username = csr.BootstrapUserPrefix + "abcdef"
	return j
}

func (j *join) verifier(t *testing.T) *attest.Verifier {
	t.Helper()
	kind := testkit.Must(document.NewKind(j.kind))
	j.config.Kinds = []attest.Kind{kind}
	v := testkit.Must(attest.NewVerifier(j.config))
	return v
}

func (j *join) attester(t *testing.T) *attest.Attester {
	t.Helper()
	prover := testkit.Must(document.NewProver(attesttest.PlatformProvider, 1, j.source))
	a := testkit.Must(attest.NewAttester(&tampering{prover, func(s attest.Stage, e *attest.Evidence) {
		if j.tamper != nil {
			j.tamper(s, e)
		}
	}}))
	return a
}

// tampering is a prover whose evidence is changed on the way.
type tampering struct {
	*document.Prover
	change func(attest.Stage, *attest.Evidence)
}

func (p *tampering) Use(ctx context.Context, stage attest.Stage, f func(attest.Session) error) error {
	return p.Prover.Use(ctx, stage, func(s attest.Session) error { return f(&tamperingSession{s, p.change}) })
}

type tamperingSession struct {
	attest.Session
	change func(attest.Stage, *attest.Evidence)
}

func (s *tamperingSession) Hello(ctx context.Context, h attest.Head) (*attest.Evidence, error) {
	e, err := s.Session.Hello(ctx, h)
	if err == nil {
		s.change(attest.StageHello, e)
	}
	return e, err
}

func (s *tamperingSession) Answer(ctx context.Context, key crypto.Signer, c *attest.Challenged) (*attest.Evidence, error) {
	e, err := s.Session.Answer(ctx, key, c)
	if err == nil {
		s.change(attest.StageAnswer, e)
	}
	return e, err
}

// object is the object that the API server keeps of a spec.
func (j *join) object(spec *csr.Spec) *csr.Request {
	return csr.Filed(spec, csr.User{Username: j.username, Groups: []string{"system:bootstrappers", "system:authenticated"}}, now)
}

// challenge is the verifier's answer to the node's hello.
func (j *join) challenge(t *testing.T, v *attest.Verifier) ([]byte, error) {
	t.Helper()
	spec := testkit.Must(j.attester(t).Hello(t.Context(), j.subject))
	return v.Challenge(t.Context(), j.object(spec))
}

// answer is a request with the answer to a good challenge.
func (j *join) answer(t *testing.T, v *attest.Verifier) *csr.Request {
	t.Helper()
	challenge := testkit.Must(j.challenge(t, v))
	spec := testkit.Must(j.attester(t).Answer(t.Context(), challenge, j.key, j.subject))
	return j.object(spec)
}

// expect expects a refusal of a check, for good unless it is a fault of the kind; none
// for "".
func expect(t *testing.T, r *attest.Result, err error, want attest.Check) {
	t.Helper()
	switch {
	case want == "" && (err != nil || r == nil), want != "" && (!errors.Is(err, want) || r != nil):
		t.Errorf("got %v, %v, want %q", r, err, want)
	case want != "" && errors.Is(err, refusal.ErrRetry) != (want == attest.CheckKind):
		t.Errorf("%v: to be tried again: %t", err, want != attest.CheckKind)
	}
}

func TestJoin(t *testing.T) {
	j := newJoin(t)
	j.kind.ManyIdentities = "it may have two"
	v := j.verifier(t)
	r := testkit.Must(v.Verify(t.Context(), j.answer(t, v)))
	if r.Provider != "platform" || r.Road != attest.RoadDocument || r.Machine != "platform:m1" || r.MachineStanding != attest.Asserted ||
		r.TPMResident || r.ResidenceStanding != "" || r.ManyIdentities != "it may have two" || r.Attested() == nil {
		t.Errorf("%+v", r)
	}
	if r.MachineKey != sha256.Sum256([]byte("nodeattest machine\x00platform:m1")) {
		t.Error("the machine's key is another")
	}
	if want := []attest.Stage{attest.StageAnswer}; !slices.Equal(j.asked, want) {
		t.Errorf("membership was asked about at %v, want %v", j.asked, want)
	}
	if j.platform.verified != 1 || !j.platform.now.Equal(now) || j.platform.budget.Signatures() != 2 || j.platform.version != 1 {
		t.Errorf("verified %d times, at %v, with %d signatures", j.platform.verified, j.platform.now, j.platform.budget.Signatures())
	}
	if facts := r.Facts(); facts[1].Name != "document" || facts[1].Standing != attest.Asserted {
		t.Errorf("%v", facts)
	}
}

// A platform that covers fewer bytes takes the first ones, and no more and no less.
func TestSizesOfValues(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		cut  func([]byte) []byte
		want attest.Check
	}{
		"32 of 32":             {32, func(v []byte) []byte { return v }, ""},
		"31 of 32":             {32, func(v []byte) []byte { return v[:31] }, attest.CheckQualifyingData},
		"33 of 32":             {32, func(v []byte) []byte { return append(bytes.Clone(v), 0) }, attest.CheckQualifyingData},
		"16 of 32":             {32, func(v []byte) []byte { return v[:16] }, attest.CheckQualifyingData},
		"16 of 16":             {16, func(v []byte) []byte { return v[:16] }, ""},
		"15 of 16":             {16, func(v []byte) []byte { return v[:15] }, attest.CheckQualifyingData},
		"17 of 16":             {16, func(v []byte) []byte { return v[:17] }, attest.CheckQualifyingData},
		"32 of 16":             {16, func(v []byte) []byte { return v }, attest.CheckQualifyingData},
		"the last 16":          {16, func(v []byte) []byte { return v[16:] }, attest.CheckQualifyingData},
		"none":                 {32, func([]byte) []byte { return nil }, attest.CheckQualifyingData},
		"zeros":                {32, func([]byte) []byte { return make([]byte, 32) }, attest.CheckQualifyingData},
		"another challenge's":  {32, func(v []byte) []byte { s := sha256.Sum256(v); return s[:] }, attest.CheckQualifyingData},
		"one bit is different": {32, func(v []byte) []byte { v = bytes.Clone(v); v[31] ^= 1; return v }, attest.CheckQualifyingData},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			j.kind.ValueSize, j.source.value = c.size, c.cut
			v := j.verifier(t)
			r, err := v.Verify(t.Context(), j.answer(t, v))
			expect(t, r, err, c.want)
			if got := j.platform.verified; (got == 1) != (c.want == "") {
				t.Errorf("the platform verified %d documents", got)
			}
		})
	}
}

func newJoinRing(t *testing.T) *attest.KeyRing {
	ring := testkit.Must(attest.NewStaticKeyRing(attest.NewRingKey(now.Add(-time.Hour))))
	return ring
}

// graft puts the evidence after another request, with a key of its own.
func graft(node string) func(*testing.T, *join, *csr.Request) {
	return func(t *testing.T, _ *join, r *csr.Request) {
		bundle := testkit.Must(csr.Parse(r.Spec.Request))
		key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		bundle.Request = testkit.Must(csr.Create(csr.PurposeClient, key, node, csr.CreateOptions{}))
		r.Spec.Request = testkit.Must(bundle.Marshal())
	}
}

// The messages hold exactly their statements, and no certificates.
func TestFramesOfMessages(t *testing.T) {
	certificates := func(e *attest.Evidence) { e.Certificates = [][]byte{{0x30, 0}} }
	typed := func(n int, as oid.OID) func(*attest.Evidence) {
		return func(e *attest.Evidence) { e.Statements[n].Type = as }
	}
	twice := func(e *attest.Evidence) { e.Statements = append(e.Statements, e.Statements[0]) }
	for name, c := range map[string]struct {
		stage  attest.Stage
		change func(*attest.Evidence)
		want   attest.Check
	}{
		"a hello with certificates":      {attest.StageHello, certificates, attest.CheckStatements},
		"a hello of a TPM":               {attest.StageHello, typed(0, oid.NodeAttestHello), attest.CheckStatements},
		"a hello twice":                  {attest.StageHello, twice, attest.CheckStatements},
		"a malformed hello":              {attest.StageHello, func(e *attest.Evidence) { e.Statements[0].DER = []byte{5, 0} }, refusal.Check("message-encoding")},
		"a proof for a hello":            {attest.StageHello, typed(0, oid.NodeAttestDocumentProof), attest.CheckStatements},
		"an answer with certificates":    {attest.StageAnswer, certificates, attest.CheckStatements},
		"an answer the other way round":  {attest.StageAnswer, func(e *attest.Evidence) { slices.Reverse(e.Statements) }, attest.CheckStatements},
		"an answer without a document":   {attest.StageAnswer, func(e *attest.Evidence) { e.Statements = e.Statements[:1] }, attest.CheckStatements},
		"an answer without a proof":      {attest.StageAnswer, func(e *attest.Evidence) { e.Statements = e.Statements[1:] }, attest.CheckStatements},
		"an answer with a third":         {attest.StageAnswer, twice, attest.CheckStatements},
		"an answer of a TPM's proof":     {attest.StageAnswer, typed(0, oid.NodeAttestProof), attest.CheckStatements},
		"a malformed proof":              {attest.StageAnswer, func(e *attest.Evidence) { e.Statements[0].DER = []byte{5, 0} }, refusal.Check("message-encoding")},
		"a malformed document":           {attest.StageAnswer, func(e *attest.Evidence) { e.Statements[1].DER = []byte{5, 0} }, refusal.Check("message-encoding")},
		"a proof of another machine":     {attest.StageAnswer, claim("platform:m2"), attest.CheckBindingMachineKey},
		"a proof of the machine's begin": {attest.StageAnswer, claim("platform:m"), attest.CheckBindingMachineKey},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			j.tamper = func(s attest.Stage, e *attest.Evidence) {
				if s == c.stage {
					c.change(e)
				}
			}
			v := j.verifier(t)
			if c.stage == attest.StageHello {
				challenge, err := j.challenge(t, v)
				expect(t, nil, err, c.want)
				if challenge != nil {
					t.Error("challenged")
				}
				return
			}
			r, err := v.Verify(t.Context(), j.answer(t, v))
			expect(t, r, err, c.want)
		})
	}
}

// claim has the proof claim another machine.
func claim(machine string) func(*attest.Evidence) {
	return func(e *attest.Evidence) {
		p, err := document.ParseProof(e.Statements[0].DER)
		if err != nil {
			panic(err)
		}
		p.Machine = machine
		if e.Statements[0].DER, err = p.Marshal(); err != nil {
			panic(err)
		}
	}
}

// answering is a prover that shows its session before it answers.
type answering struct {
	*document.Prover
	show func(attest.Session, *attest.Challenged)
}

func (p *answering) Use(ctx context.Context, stage attest.Stage, f func(attest.Session) error) error {
	return p.Prover.Use(ctx, stage, func(s attest.Session) error { return f(&answeringSession{s, p.show}) })
}

type answeringSession struct {
	attest.Session
	show func(attest.Session, *attest.Challenged)
}

func (s *answeringSession) Answer(ctx context.Context, key crypto.Signer, c *attest.Challenged) (*attest.Evidence, error) {
	s.show(s.Session, c)
	return s.Session.Answer(ctx, key, c)
}
