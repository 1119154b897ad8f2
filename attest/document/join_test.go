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

// spy is a platform that says something else than what it found.
type spy struct {
	*attesttest.Platform
	read, verify func(*document.Claims) (*document.Claims, error)
	verified     int
	now          time.Time
	signatures   int // of the budget, after the document was verified
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
	s.signatures, s.version = q.Budget.Signatures(), q.Version
	if err == nil && s.verify != nil {
		return s.verify(claims)
	}
	return claims, err
}

// source is a machine that may ask for something else than what it is asked for.
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
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(now.Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := csr.SignerClient(attesttest.PlatformProvider)
	if err != nil {
		t.Fatal(err)
	}
	j.config = attest.VerifierConfig{KeyRing: ring, Now: func() time.Time { return now },
		Policy: &csr.Policy{ClusterIDs: []string{"cluster-1"}, SignerNames: []string{signer}, Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: "machine-of-" + q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			j.asked = append(j.asked, r.Stage)
			if j.refuse {
				return nil, attest.NotMember("it is none")
			}
			return r.Admit(r.NodeName), nil
		})}
	if j.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	j.subject = attest.Subject{SignerName: signer, ClusterID: "cluster-1", ExpirationSeconds: 3600}
	if j.subject.Request, err = csr.Create(csr.PurposeClient, j.key, "node-1", csr.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	j.username = csr.BootstrapUserPrefix + "abcdef"
	return j
}

func (j *join) verifier(t *testing.T) *attest.Verifier {
	t.Helper()
	kind, err := document.NewKind(j.kind)
	if err != nil {
		t.Fatal(err)
	}
	j.config.Kinds = []attest.Kind{kind}
	v, err := attest.NewVerifier(j.config)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (j *join) attester(t *testing.T) *attest.Attester {
	t.Helper()
	prover, err := document.NewProver(attesttest.PlatformProvider, j.source)
	if err != nil {
		t.Fatal(err)
	}
	a, err := attest.NewAttester(&tampering{prover, func(s attest.Stage, e *attest.Evidence) {
		if j.tamper != nil {
			j.tamper(s, e)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
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
	spec, err := j.attester(t).Hello(t.Context(), j.subject)
	if err != nil {
		t.Fatal(err)
	}
	return v.Challenge(t.Context(), j.object(spec))
}

// answer is a request with the answer to a good challenge.
func (j *join) answer(t *testing.T, v *attest.Verifier) *csr.Request {
	t.Helper()
	challenge, err := j.challenge(t, v)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := j.attester(t).Answer(t.Context(), challenge, j.key, j.subject)
	if err != nil {
		t.Fatal(err)
	}
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
	r, err := v.Verify(t.Context(), j.answer(t, v))
	if err != nil {
		t.Fatal(err)
	}
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
	if j.platform.verified != 1 || !j.platform.now.Equal(now) || j.platform.signatures != 2 || j.platform.version != 1 {
		t.Errorf("verified %d times, at %v, with %d signatures", j.platform.verified, j.platform.now, j.platform.signatures)
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

// A good document after a message that it is not for, and bad ones.
func TestBadDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*join)
		want     attest.Check
		verified bool // the platform's signature was looked at
	}{
		"as it is":           {func(*join) {}, "", true},
		"of another machine": {func(j *join) { j.source.name = "m2" }, attest.CheckMachineClaim, false},
		"a forged signature": {func(j *join) {
			j.source.platform = attesttest.NewPlatform(t)
			j.source.platform.Now = j.platform.Now
		}, refusal.Check("platform-document"), true},
		"no document of the platform's": {func(j *join) { j.source.document = func([]byte) []byte { return []byte("{}x") } }, refusal.Check("platform-document"), false},
		"a document too old": {func(j *join) {
			j.source.platform.Now = func() time.Time { return now.Add(-time.Hour) }
		}, refusal.Check("platform-document"), true},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			c.change(j)
			v := j.verifier(t)
			r, err := v.Verify(t.Context(), j.answer(t, v))
			expect(t, r, err, c.want)
			if got := j.platform.verified == 1; got != c.verified {
				t.Errorf("verified: %t", got)
			}
			if c.want != "" && len(j.asked) != 0 {
				t.Error("membership was asked about")
			}
		})
	}
}

// A platform that reads one thing and verifies another, or nothing.
func TestBadPlatforms(t *testing.T) {
	says := func(change func(*document.Claims)) func(*document.Claims) (*document.Claims, error) {
		return func(c *document.Claims) (*document.Claims, error) { change(c); return c, nil }
	}
	nothing := func(*document.Claims) (*document.Claims, error) { return nil, nil }
	refuses := func(*document.Claims) (*document.Claims, error) {
		return nil, &attest.Error{Check: "platform-document"}
	}
	machine := func(id attest.Identity) func(*document.Claims) (*document.Claims, error) {
		return says(func(c *document.Claims) { c.Machine = id })
	}
	value := says(func(c *document.Claims) { c.Value = make([]byte, len(c.Value)) })
	prefix := says(func(c *document.Claims) { c.Value = c.Value[:16] })
	for name, c := range map[string]struct {
		read, verify func(*document.Claims) (*document.Claims, error)
		want         attest.Check
	}{
		"reads nothing":                     {nothing, nil, attest.CheckKind},
		"verifies nothing":                  {nil, nothing, attest.CheckKind},
		"reads no":                          {refuses, nil, refusal.Check("platform-document")},
		"verifies no":                       {nil, refuses, refusal.Check("platform-document")},
		"reads another machine":             {machine("platform:m2"), nil, attest.CheckMachineClaim},
		"verifies another machine":          {nil, machine("platform:m2"), attest.CheckMachineClaim},
		"verifies no machine":               {nil, machine(""), attest.CheckIdentity},
		"verifies what is no identity":      {nil, machine("m1"), attest.CheckIdentity},
		"verifies another kind of identity": {nil, machine("ek:m1"), attest.CheckKind},
		"reads another value":               {value, nil, attest.CheckQualifyingData},
		"verifies another value":            {nil, value, attest.CheckQualifyingData},
		"reads a prefix":                    {prefix, nil, attest.CheckQualifyingData},
		"verifies a prefix":                 {nil, prefix, attest.CheckQualifyingData},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			j.platform.read, j.platform.verify = c.read, c.verify
			v := j.verifier(t)
			r, err := v.Verify(t.Context(), j.answer(t, v))
			expect(t, r, err, c.want)
			if got := j.platform.verified == 1; got != (c.read == nil) {
				t.Errorf("verified: %t", got)
			}
		})
	}
	t.Run("says too much", func(t *testing.T) {
		j := newJoin(t)
		j.platform.verify = says(func(c *document.Claims) {
			c.Facts = []attest.Fact{{Standing: attest.Proven, Name: "region", Value: "eu"}, {Standing: attest.Vouched, Name: "x", Value: "y"}}
			c.Details = "details"
		})
		v := j.verifier(t)
		r, err := v.Verify(t.Context(), j.answer(t, v))
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Facts(); f[1].Standing != attest.Asserted || f[2].Standing != "" || r.Details != "details" {
			t.Errorf("%v, details %v", f, r.Details)
		}
	})
}

// An answer is good for one cluster, request, requester, lifetime and key ring.
func TestAnswersElsewhere(t *testing.T) {
	other := func(t *testing.T, of *join, change func(*join)) *attest.Verifier {
		j := newJoin(t)
		j.kind, j.config.KeyRing = of.kind, of.config.KeyRing
		change(j)
		return j.verifier(t)
	}
	otherSigner, err := csr.SignerClient("platform-b")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		plane   func(*join)
		request func(t *testing.T, j *join, r *csr.Request)
		want    attest.Check
	}{
		"where it belongs":  {func(*join) {}, nil, ""},
		"another cluster":   {func(j *join) { j.config.Policy.ClusterIDs = []string{"cluster-2"} }, nil, attest.CheckBindingCluster},
		"another requester": {func(*join) {}, func(_ *testing.T, _ *join, r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "mallor" }, attest.CheckBindingRequester},
		"another lifetime":  {func(*join) {}, func(_ *testing.T, _ *join, r *csr.Request) { r.Spec.ExpirationSeconds = nil }, attest.CheckBindingExpiration},
		"another request":   {func(*join) {}, graft("node-1"), attest.CheckBindingRequest},
		"another node":      {func(*join) {}, graft("node-2"), attest.CheckBindingRequest},
		"another ring":      {func(j *join) { j.config.KeyRing = newJoinRing(t) }, nil, refusal.Check("ring-key")},
		"another kind": {func(j *join) { j.kind.Provider, j.config.Policy.SignerNames = "platform-b", []string{otherSigner} },
			func(_ *testing.T, _ *join, r *csr.Request) { r.Spec.SignerName = otherSigner }, csr.CheckAttestationProvider},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			answer := j.answer(t, j.verifier(t))
			if c.request != nil {
				c.request(t, j, answer)
			}
			v := other(t, j, c.plane)
			r, err := v.Verify(t.Context(), answer)
			expect(t, r, err, c.want)
		})
	}
}

func newJoinRing(t *testing.T) *attest.KeyRing {
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(now.Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// graft puts the evidence after another request, with a key of its own.
func graft(node string) func(*testing.T, *join, *csr.Request) {
	return func(t *testing.T, _ *join, r *csr.Request) {
		bundle, err := csr.Parse(r.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if bundle.Request, err = csr.Create(csr.PurposeClient, key, node, csr.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if r.Spec.Request, err = bundle.Marshal(); err != nil {
			t.Fatal(err)
		}
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
		"a hello that is none":           {attest.StageHello, func(e *attest.Evidence) { e.Statements[0].DER = []byte{5, 0} }, refusal.Check("message-encoding")},
		"a proof for a hello":            {attest.StageHello, typed(0, oid.NodeAttestDocumentProof), attest.CheckStatements},
		"an answer with certificates":    {attest.StageAnswer, certificates, attest.CheckStatements},
		"an answer the other way round":  {attest.StageAnswer, func(e *attest.Evidence) { slices.Reverse(e.Statements) }, attest.CheckStatements},
		"an answer without a document":   {attest.StageAnswer, func(e *attest.Evidence) { e.Statements = e.Statements[:1] }, attest.CheckStatements},
		"an answer without a proof":      {attest.StageAnswer, func(e *attest.Evidence) { e.Statements = e.Statements[1:] }, attest.CheckStatements},
		"an answer with a third":         {attest.StageAnswer, twice, attest.CheckStatements},
		"an answer of a TPM's proof":     {attest.StageAnswer, typed(0, oid.NodeAttestProof), attest.CheckStatements},
		"a proof that is none":           {attest.StageAnswer, func(e *attest.Evidence) { e.Statements[0].DER = []byte{5, 0} }, refusal.Check("message-encoding")},
		"a document that is none":        {attest.StageAnswer, func(e *attest.Evidence) { e.Statements[1].DER = []byte{5, 0} }, refusal.Check("message-encoding")},
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

// A key that must live in a TPM is never shown by a document: the hello is refused.
func TestRequiredResidence(t *testing.T) {
	j := newJoin(t)
	j.config.RequireTPMResident = true
	_, err := j.challenge(t, j.verifier(t))
	expect(t, nil, err, refusal.Check("key-not-resident"))

	j = newJoin(t)
	answer := j.answer(t, j.verifier(t))
	j.config.RequireTPMResident = true
	r, err := j.verifier(t).Verify(t.Context(), answer)
	expect(t, r, err, refusal.Check("key-not-resident"))
}

// A machine that is no member is challenged, since its claim is nobody's word yet, and
// refused at the answer.
func TestMembership(t *testing.T) {
	j := newJoin(t)
	j.refuse = true
	v := j.verifier(t)
	answer := j.answer(t, v)
	if len(j.asked) != 0 {
		t.Errorf("membership was asked about at %v", j.asked)
	}
	r, err := v.Verify(t.Context(), answer)
	expect(t, r, err, attest.CheckMembership)
}

// A node whose hello was refused or for another cluster gets no challenge.
func TestHellosElsewhere(t *testing.T) {
	j := newJoin(t)
	j.subject.ClusterID = "cluster-2"
	_, err := j.challenge(t, j.verifier(t))
	expect(t, nil, err, attest.CheckBindingCluster)
	j = newJoin(t)
	j.source.identity = "ek:m1" // of no kind that its documents name machines by
	_, err = j.challenge(t, j.verifier(t))
	expect(t, nil, err, attest.CheckIdentity) // a stranger's claim, so refused for good
}

func TestNewKind(t *testing.T) {
	var none *spy
	for name, platform := range map[string]document.Platform{"none": nil, "a nil pointer": none} {
		t.Run(name, func(t *testing.T) {
			c := newJoin(t).kind
			c.Platform = platform
			if k, err := document.NewKind(c); !errors.Is(err, refusal.CheckConfig) || k != nil {
				t.Errorf("got %v, %v", k, err)
			}
		})
	}
	for name, c := range map[string]struct {
		change func(*document.KindConfig)
		good   bool
	}{
		"as it is":           {func(*document.KindConfig) {}, true},
		"no provider":        {func(c *document.KindConfig) { c.Provider = "" }, false},
		"a provider, dotted": {func(c *document.KindConfig) { c.Provider = "a.b" }, false},
		"insecure":           {func(c *document.KindConfig) { c.Provider = "insecure" }, false},
		"no identities":      {func(c *document.KindConfig) { c.Identities = nil }, false},
		"versions":           {func(c *document.KindConfig) { c.Versions = []int{1, 2} }, true},
		"no versions at all": {func(c *document.KindConfig) { c.Versions = []int{} }, false},
		"version 0":          {func(c *document.KindConfig) { c.Versions = []int{0} }, false},
		"no size":            {func(c *document.KindConfig) { c.ValueSize = 0 }, false},
		"15 bytes":           {func(c *document.KindConfig) { c.ValueSize = 15 }, false},
		"16 bytes":           {func(c *document.KindConfig) { c.ValueSize = 16 }, true},
		"33 bytes":           {func(c *document.KindConfig) { c.ValueSize = 33 }, false},
	} {
		t.Run("verifier, "+name, func(t *testing.T) {
			j := newJoin(t)
			c.change(&j.kind)
			k, err := document.NewKind(j.kind)
			if err != nil {
				t.Fatal(err)
			}
			j.config.Kinds = []attest.Kind{k}
			if v, err := attest.NewVerifier(j.config); (err == nil) != c.good || (v != nil) != c.good || !c.good && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
}

func TestNewProver(t *testing.T) {
	for name, s := range map[string]document.Source{"none": nil, "a nil pointer": (*source)(nil)} {
		t.Run(name, func(t *testing.T) {
			if p, err := document.NewProver("platform", s); !errors.Is(err, refusal.CheckConfig) || p != nil {
				t.Errorf("got %v, %v", p, err)
			}
		})
	}
	p, err := document.NewProver("platform", &source{})
	if err != nil || p.Provider() != "platform" || p.Close() != nil {
		t.Errorf("%v, %v", p, err)
	}
	p, err = document.NewProver("", &source{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attest.NewAttester(p); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("without a name: %v", err)
	}
}

// What a source cannot say, or says wrongly, is an error of the message.
func TestFailingSources(t *testing.T) {
	size := func(n int) func([]byte) []byte { return func([]byte) []byte { return make([]byte, n) } }
	for name, c := range map[string]struct {
		change        func(*source)
		hello, answer error
	}{
		"no machine":       {func(s *source) { s.fails = "Machine" }, errSource, errSource},
		"an empty machine": {func(s *source) { s.identity = "" }, attest.CheckIdentity, attest.CheckIdentity},
		"a machine too long": {func(s *source) {
			s.identity = attest.Identity("platform:" + string(make([]byte, document.MaxMachineSize)))
		}, refusal.Check("message-encoding"), attest.CheckBindingMachineKey},
		"another machine":      {func(s *source) { s.identity = "platform:m2" }, nil, attest.CheckBindingMachineKey},
		"no document":          {func(s *source) { s.fails = "Document" }, nil, errSource},
		"an empty document":    {func(s *source) { s.document = size(0) }, nil, refusal.Check("message-encoding")},
		"the largest document": {func(s *source) { s.document = size(document.MaxDocumentSize) }, nil, nil},
		"a larger one":         {func(s *source) { s.document = size(document.MaxDocumentSize + 1) }, nil, refusal.Check("message-encoding")},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			challenge, err := j.challenge(t, j.verifier(t))
			if err != nil {
				t.Fatal(err)
			}
			c.change(j.source)
			_, err = j.attester(t).Hello(t.Context(), j.subject)
			if (err == nil) != (c.hello == nil) || c.hello != nil && !errors.Is(err, c.hello) {
				t.Errorf("hello: got %v, want %v", err, c.hello)
			}
			_, err = j.attester(t).Answer(t.Context(), challenge, j.key, j.subject)
			if (err == nil) != (c.answer == nil) || c.answer != nil && !errors.Is(err, c.answer) {
				t.Errorf("answer: got %v, want %v", err, c.answer)
			}
		})
	}
}

// What a session cannot write is its own error, and no evidence.
func TestEvidenceThatCannotBeWritten(t *testing.T) {
	j := newJoin(t)
	p, err := document.NewProver(attesttest.PlatformProvider, j.source)
	if err != nil {
		t.Fatal(err)
	}
	expectNothing := func(t *testing.T, e *attest.Evidence, err error) error {
		t.Helper()
		if e != nil || !errors.Is(err, refusal.Check("message-encoding")) {
			t.Errorf("got %v, %v", e, err)
		}
		return nil
	}
	use := func(t *testing.T, stage attest.Stage, f func(attest.Session) error) {
		t.Helper()
		if err := p.Use(t.Context(), stage, f); err != nil {
			t.Error(err)
		}
	}
	t.Run("hello", func(t *testing.T) {
		use(t, attest.StageHello, func(s attest.Session) error {
			e, err := s.Hello(t.Context(), attest.Head{})
			return expectNothing(t, e, err)
		})
	})
	t.Run("proof of no challenge", func(t *testing.T) {
		use(t, attest.StageAnswer, func(s attest.Session) error {
			e, err := s.Answer(t.Context(), j.key, new(attest.Challenged))
			return expectNothing(t, e, err)
		})
	})
	t.Run("document", func(t *testing.T) {
		challenge, err := j.challenge(t, j.verifier(t))
		if err != nil {
			t.Fatal(err)
		}
		j.source.document = func([]byte) []byte { return make([]byte, document.MaxDocumentSize+1) }
		asked := false
		a, err := attest.NewAttester(&answering{p, func(s attest.Session, c *attest.Challenged) {
			asked = true
			e, err := s.Answer(t.Context(), j.key, c)
			_ = expectNothing(t, e, err)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = a.Answer(t.Context(), challenge, j.key, j.subject); !errors.Is(err, refusal.Check("message-encoding")) || !asked {
			t.Errorf("%v, asked %t", err, asked)
		}
	})
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

// A session of documents opens no credential.
func TestNoCredentials(t *testing.T) {
	p, err := document.NewProver("platform", newJoin(t).source)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Use(t.Context(), attest.StageAnswer, func(s attest.Session) error {
		secret, err := s.Open(t.Context(), &attest.Credential{IDObject: []byte{1}, EncryptedSecret: []byte{1}})
		if secret != nil {
			t.Error("opened")
		}
		return err
	})
	if !errors.Is(err, attest.CheckBindingRoad) {
		t.Errorf("got %v", err)
	}
}
