package attest_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
)

// workedExample is testdata/messages: the values, and every file.
type workedExample struct {
	NodeName, ProviderID, ClusterID, SignerName, ChallengeSigner, Requester string
	Groups, Usages                                                          []string
	ExpirationSeconds                                                       int32
	HelloCreated, AnswerCreated, Verified                                   time.Time
	RingKey                                                                 struct {
		ID, Secret hexText
		ActiveAt   time.Time
	}
	Nonce                                           hexText
	IssuedAt, NotAfter                              int64
	MachineKey, RequestHash, Secret, QualifyingData hexText
	AKName, AKQualifiedName, KeyName                hexText
	Machine                                         string

	files map[string][]byte
	read  map[string]bool
}

type hexText []byte

func (h *hexText) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

func loadWorkedExample(t testing.TB) *workedExample {
	t.Helper()
	dir := filepath.Join("testdata", "messages")
	entries := testkit.Must(os.ReadDir(dir))
	e := &workedExample{files: map[string][]byte{}, read: map[string]bool{"README.md": true, "example.json": true}}
	for _, entry := range entries {
		e.files[entry.Name()] = testkit.Must(os.ReadFile(filepath.Join(dir, entry.Name())))
	}
	d := json.NewDecoder(bytes.NewReader(e.files["example.json"]))
	d.DisallowUnknownFields()
	testkit.NoError(t, d.Decode(e))
	return e
}

// file returns one file, and marks it as read.
func (e *workedExample) file(t testing.TB, name string) []byte {
	t.Helper()
	data := e.files[name]
	if len(data) == 0 {
		t.Fatalf("no file %s", name)
	}
	e.read[name] = true
	return data
}

// certificates reads a PEM file.
func (e *workedExample) certificates(t *testing.T, name string) []*x509.Certificate {
	t.Helper()
	var out []*x509.Certificate
	for rest := e.file(t, name); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			t.Fatalf("%s: no PEM", name)
		}
		c := testkit.Must(x509.ParseCertificate(block.Bytes))
		out = append(out, c)
	}
	return out
}

// same reads a message, writes it again, and wants the same bytes.
func same[M interface{ Marshal() ([]byte, error) }](t *testing.T, e *workedExample, name string, parse func([]byte) (M, error)) M {
	t.Helper()
	der := e.file(t, name)
	m, err := parse(der)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	again, err := m.Marshal()
	if err != nil || !bytes.Equal(again, der) {
		t.Errorf("%s: %v\n got %x\nwant %x", name, err, again, der)
	}
	return m
}

// TestWorkedExample reads every message of the worked example, writes it again, and
// derives every value from the others.
func TestWorkedExample(t *testing.T) {
	e := loadWorkedExample(t)
	hello := same(t, e, "hello.der", message.ParseHello)
	binding := same(t, e, "binding.der", message.ParseBinding)
	challenge := same(t, e, "challenge.der", message.ParseChallenge)
	proof := same(t, e, "proof.der", parseProof)
	evidence := same(t, e, "attest.bin", statement.ParseAttestation)
	same(t, e, "signature.bin", statement.ParseSignature)
	ak := same(t, e, "ak-public.bin", statement.ParsePublic)
	key := same(t, e, "key-public.bin", statement.ParsePublic)

	der := e.file(t, "binding.der")
	secret := exampleHMAC(e.RingKey.Secret, "nodeattest/tpm/v1 secret\x00", der)
	request := testkit.Must(csr.ParsePKCS10(e.file(t, "request.der")))
	akKey := testkit.Must(ak.Key())
	machineKey := testkit.Must(csr.SPKIHash(akKey))
	want := message.Binding{Road: message.RoadAK, KeyID: [8]byte(e.RingKey.ID), Nonce: [16]byte(e.Nonce), IssuedAt: e.IssuedAt, NotAfter: e.NotAfter,
		ClusterID: e.ClusterID, SignerName: e.SignerName, Requester: e.Requester, ExpirationSeconds: e.ExpirationSeconds,
		MachineKey: machineKey, RequestHash: request.InfoHash, AKName: []byte{}}
	if diff := cmp.Diff(want, *binding); diff != "" {
		t.Errorf("binding:\n%s", diff)
	}
	for name, pair := range map[string][2][]byte{
		"machineKey":              {e.MachineKey, machineKey[:]},
		"requestHash":             {e.RequestHash, request.InfoHash[:]},
		"secret":                  {e.Secret, secret},
		"secret in the challenge": {challenge.Clear, secret},
		"qualifyingData":          {e.QualifyingData, exampleHMAC(secret, "nodeattest/tpm/v1 certify\x00", der)},
		"extraData":               {evidence.ExtraData, e.QualifyingData},
		"akName":                  {e.AKName, ak.Name()},
		"akQualifiedName":         {e.AKQualifiedName, statement.QualifiedName([]byte{0x40, 0, 0, 0x0b}, ak.Name())},
		"qualifiedSigner":         {evidence.QualifiedSigner, e.AKQualifiedName},
		"keyName":                 {e.KeyName, key.Name()},
		"certified Name":          {evidence.Certified.Name, e.KeyName},
		"akPublic of the hello":   {hello.AKPublic, ak.Raw},
		"akPublic of the proof":   {proof.AKPublic, ak.Raw},
		"binding of the proof":    {proof.Binding, der},
		"challenge's message":     {e.file(t, "challenge.txt"), []byte(attest.ChallengeDecision(e.file(t, "challenge.der"), nil).Message)},
	} {
		t.Run(name, func(t *testing.T) {
			if !bytes.Equal(pair[0], pair[1]) {
				t.Errorf("%s: got %x, want %x", name, pair[0], pair[1])
			}
		})
	}
	if hello.ClusterID != e.ClusterID || hello.TargetSigner != e.SignerName || hello.Road != message.RoadAK {
		t.Errorf("hello: %+v", hello)
	}
	checkExampleKey(t, e, key, request)
	checkExampleBundles(t, e)
	checkOtherRoad(t, e)
	for name := range e.files {
		if !e.read[name] {
			t.Errorf("%s: no test reads it", name)
		}
	}
}

func exampleHMAC(key []byte, label string, binding []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	m.Write(binding)
	return m.Sum(nil)
}

// checkExampleKey holds the private key against the request and the statement.
func checkExampleKey(t *testing.T, e *workedExample, certified *statement.Public, request *csr.PKCS10) {
	t.Helper()
	block, _ := pem.Decode(e.file(t, "tls-key.pem"))
	if block == nil {
		t.Fatal("tls-key.pem: no PEM")
	}
	private := testkit.Must(x509.ParsePKCS8PrivateKey(block.Bytes))
	public := private.(crypto.Signer).Public()
	if !certified.SameKey(public) || !certified.SameKey(request.CSR.PublicKey) {
		t.Error("private key, request and statement are of different keys")
	}
	if err := request.CheckSignature(); err != nil {
		t.Error(err)
	}
	if request.ProviderID != e.ProviderID {
		t.Errorf("provider ID %q", request.ProviderID)
	}
}

// checkExampleBundles puts the bundles together from their parts.
func checkExampleBundles(t *testing.T, e *workedExample) {
	t.Helper()
	certify, err := statement.MarshalTCGAttestCertify(&statement.CertifyEvidence{Attest: e.file(t, "attest.bin"),
		Signature: e.file(t, "signature.bin"), Public: e.file(t, "key-public.bin")})
	if err != nil || !bytes.Equal(certify, e.file(t, "certify.der")) {
		t.Errorf("certify.der: %v", err)
	}
	var chain [][]byte
	certificates := append(e.certificates(t, "ak-chain.pem"), e.certificates(t, "root.pem")...)
	for i, c := range certificates[:len(certificates)-1] {
		if err := c.CheckSignatureFrom(certificates[i+1]); err != nil {
			t.Errorf("certificate %d: %v", i, err)
		}
		chain = append(chain, c.Raw)
	}
	for name, statements := range map[string][]message.Statement{
		"hello":  {{Type: oid.NodeAttestHello, Stmt: e.file(t, "hello.der")}},
		"answer": {{Type: oid.TCGAttestTPMCertify, Stmt: certify}, {Type: oid.NodeAttestProof, Stmt: e.file(t, "proof.der")}},
	} {
		data, err := (&message.Bundle{Statements: statements, Certificates: chain}).Marshal()
		if err != nil || !bytes.Equal(data, e.file(t, name+"-evidence.der")) {
			t.Errorf("%s-evidence.der: %v", name, err)
		}
		text, err := (&csr.Bundle{Request: e.file(t, "request.der"), Provider: "tpm/v1", Data: data}).Marshal()
		if err != nil || !bytes.Equal(text, e.file(t, name+".pem")) {
			t.Errorf("%s.pem: %v", name, err)
		}
	}
}

// checkOtherRoad reads the messages of the road of the EK certificate.
func checkOtherRoad(t *testing.T, e *workedExample) {
	t.Helper()
	hello := same(t, e, "hello-ek.der", message.ParseHello)
	binding := same(t, e, "binding-ek.der", message.ParseBinding)
	challenge := same(t, e, "challenge-ek.der", message.ParseChallenge)
	proof := same(t, e, "proof-ek.der", parseProof)
	ek := testkit.Must(x509.ParsePKIXPublicKey(hello.EKPublic))
	machineKey := testkit.Must(csr.SPKIHash(ek))
	if binding.Road != message.RoadEK || binding.MachineKey != machineKey || !bytes.Equal(binding.AKName, e.AKName) ||
		!bytes.Equal(proof.EKPublic, hello.EKPublic) || challenge.Credential == nil || challenge.Clear != nil {
		t.Errorf("binding %+v, challenge %+v", binding, challenge)
	}
	if diff := cmp.Diff(*binding, challenge.Binding); diff != "" {
		t.Error(diff)
	}
}

// A verifier with the example's values accepts its answer, and gives its challenge,
// but for the nonce, to its hello.
func TestWorkedExampleVerifies(t *testing.T) {
	e := loadWorkedExample(t)
	key := attest.RingKey{ID: [8]byte(e.RingKey.ID), Secret: secret.New([message.SecretSize]byte(e.RingKey.Secret)), ActiveAt: e.RingKey.ActiveAt}
	ring := testkit.Must(attest.NewStaticKeyRing(key))
	kind := testkit.Must(tpm.TrustAKs(e.certificates(t, "root.pem"), tpmcert.ProfileTCG()))
	verifier := testkit.Must(attest.NewVerifier(attest.VerifierConfig{
		KeyRing: ring,
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{ClusterIDs: []string{e.ClusterID}, SignerNames: []string{e.SignerName}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
			return &csr.Machine{NodeName: e.NodeName, ProviderID: e.ProviderID, BootstrapReady: true}, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			if string(r.Machine) != e.Machine {
				return nil, attest.NotMember("machine " + string(r.Machine))
			}
			a := r.Admit(attest.KnownNode(e.NodeName))
			a.ProviderID = e.ProviderID
			return a, nil
		}),
		Now: func() time.Time { return e.Verified },
	}))
	object := func(file, signer string, created time.Time) *csr.Request {
		return csr.Filed(&csr.Spec{Request: e.file(t, file), SignerName: signer, ExpirationSeconds: &e.ExpirationSeconds, Usages: e.Usages},
			csr.User{Username: e.Requester, Groups: e.Groups}, created)
	}
	ctx := context.Background()
	r := testkit.Must(verifier.Verify(ctx, object("answer.pem", e.SignerName, e.AnswerCreated)))
	if r.NodeName != e.NodeName || r.TPMResident || !tpm.DetailsOf(r).AKPrimary {
		t.Errorf("node %s, resident %v, primary %v", r.NodeName, r.TPMResident, tpm.DetailsOf(r).AKPrimary)
	}
	der := testkit.Must(verifier.Challenge(ctx, object("hello.pem", e.ChallengeSigner, e.HelloCreated)))
	got := testkit.Must(message.ParseChallenge(der))
	want := testkit.Must(message.ParseChallenge(e.file(t, "challenge.der")))
	if got.Binding.Nonce == want.Binding.Nonce || slices.Equal(got.Clear, want.Clear) {
		t.Error("two challenges with one nonce")
	}
	got.Binding.Nonce = want.Binding.Nonce
	if diff := cmp.Diff(want.Binding, got.Binding); diff != "" {
		t.Error(diff)
	}
}

func parseProof(der []byte) (*message.Proof, error) {
	p, _, err := message.ParseProof(der)
	return p, err
}
