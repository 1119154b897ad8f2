package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestClusterIDOfNoCA(t *testing.T) {
	for name, ca := range map[string]*x509.Certificate{"none": nil, "without a key": {}} {
		if id, err := ClusterID(ca); err == nil || id != "" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
}

// What NewAttester is given has to name one key and one source of each certificate. The
// TPM is not asked.
func TestInputsOfNewAttester(t *testing.T) {
	tpm := tpmsim.Faulty(nil, nil)
	one, two := [][]byte{{0x30, 0}}, [][]byte{{0x30, 0}, {0x30, 0}}
	ek := EKP256()
	inNV := EKP256()
	inNV.CertificateIndex = 0x01c0000a
	ek.CertificateIndex = 0
	bare := AKSource{Template: AKTemplateECDSAP256()}
	for name, c := range map[string]struct {
		source AKSource
		opts   AttesterOptions
		good   bool
	}{
		"a certificate in NV":                 {GCERSA(), AttesterOptions{}, true},
		"a certificate":                       {bare, AttesterOptions{Certificates: one}, true},
		"no certificate":                      {bare, AttesterOptions{}, false},
		"an index of 1":                       {AKSource{Template: bare.Template, CertificateIndex: 1}, AttesterOptions{}, true},
		"intermediates without a leaf":        {bare, AttesterOptions{Intermediates: one}, false},
		"no key":                              {AKSource{CertificateIndex: 1}, AttesterOptions{}, false},
		"two keys":                            {AKSource{Template: bare.Template, Handle: 0x81000001}, AttesterOptions{Certificates: one}, false},
		"a leaf in NV and intermediates":      {GCERSA(), AttesterOptions{Intermediates: one}, true},
		"one certificate and intermediates":   {GCERSA(), AttesterOptions{Certificates: one, Intermediates: one}, false},
		"two certificates and intermediates":  {GCERSA(), AttesterOptions{Certificates: two, Intermediates: one}, false},
		"two certificates and two more":       {GCERSA(), AttesterOptions{Certificates: two, Intermediates: two}, false},
		"one certificate and two more":        {GCERSA(), AttesterOptions{Certificates: one, Intermediates: two}, false},
		"an EK without a certificate":         {bare, AttesterOptions{EK: &ek}, true},
		"an EK of nothing":                    {bare, AttesterOptions{EK: &EKOrigin{}}, false},
		"a chain from NV":                     {bare, AttesterOptions{EK: &inNV, EKChainFromNV: true}, true},
		"a chain from NV of an AK":            {GCERSA(), AttesterOptions{EKChainFromNV: true}, false},
		"a chain from NV of a bare EK":        {bare, AttesterOptions{EK: &ek, EKChainFromNV: true}, false},
		"a chain from NV and certificates":    {bare, AttesterOptions{EK: &inNV, EKChainFromNV: true, Certificates: one}, false},
		"a chain from NV and intermediates":   {bare, AttesterOptions{EK: &inNV, EKChainFromNV: true, Intermediates: one}, false},
		"an event log that nothing vouches":   {GCERSA(), AttesterOptions{EventLog: func(context.Context) ([]byte, error) { return nil, nil }}, false},
		"a quote of nothing":                  {GCERSA(), AttesterOptions{Quote: []PCRSelection{}}, false},
		"a quote of a bank without a PCR":     {GCERSA(), AttesterOptions{Quote: []PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: make([]byte, 3)}}}, false},
		"a quote of the PCRs that are quoted": {GCERSA(), AttesterOptions{Quote: DefaultPCRs()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := NewAttester(tpm, c.source, &c.opts)
			if c.good != (err == nil) || c.good != (a != nil) {
				t.Errorf("got %v, %v", a, err)
			}
		})
	}
	if a, err := NewAttester(nil, GCERSA(), nil); err == nil || a != nil {
		t.Errorf("no TPM: %v, %v", a, err)
	}
	if _, err := AKPublic(t.Context(), nil, GCERSA(), secret.Value[[]byte]{}); err == nil {
		t.Error("AKPublic without a TPM")
	}
	if tpm.Count() != 0 {
		t.Errorf("sent %v", tpm.Names())
	}
}

func TestAKPublicOfAFailingTPM(t *testing.T) {
	broken := errors.New("broken")
	p, err := AKPublic(t.Context(), tpmsim.Faulty(newTPM(t), tpmsim.FailAt(1, broken)), GCERSA(), secret.Value[[]byte]{})
	if !errors.Is(err, broken) || p != nil {
		t.Errorf("got %v, %v", p, err)
	}
}

// nodeOfTest is an attester on road AK over a TPM that records what is sent to it, the
// key of its request, and a challenge that it answers.
type nodeOfTest struct {
	tpm       *tpmsim.FaultyTPM
	attester  *Attester
	key       Key
	subject   Subject
	challenge Challenge
}

func subjectOfTest(t *testing.T, private crypto.Signer) Subject {
	t.Helper()
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		t.Fatal(err)
	}
	return Subject{Request: request, SignerName: "example.com/signer", ClusterID: "cluster-1", ExpirationSeconds: 3600}
}

func newNodeOfTest(t *testing.T) *nodeOfTest {
	t.Helper()
	tpm := tpmsim.New(t, &tpmsim.Options{EKs: []tpmsim.Algorithm{}})
	private := newECDSA(t, elliptic.P256())
	n := &nodeOfTest{tpm: tpmsim.Faulty(tpm, nil), key: mustSoftwareKey(t, private), subject: subjectOfTest(t, private)}
	var err error
	if n.attester, err = NewAttester(n.tpm, GCERSA(), nil); err != nil {
		t.Fatal(err)
	}
	b := testBinding()
	b.ClusterID, b.SignerName, b.ExpirationSeconds = n.subject.ClusterID, n.subject.SignerName, n.subject.ExpirationSeconds
	parsed, err := csr.ParsePKCS10(n.subject.Request)
	if err != nil {
		t.Fatal(err)
	}
	b.RequestHash = parsed.InfoHash
	if b.MachineKey, err = csr.SPKIHash(tpm.AKPublic(tpmsim.RSA2048)); err != nil {
		t.Fatal(err)
	}
	n.challenge = Challenge{Binding: *b, Clear: make([]byte, SecretSize)}
	return n
}

func (n *nodeOfTest) answer(t *testing.T) (*csr.Bundle, error) {
	t.Helper()
	return n.attester.Answer(t.Context(), must(t, fst(n.challenge.Marshal()), nil), n.key, &n.subject)
}

// A subject that the node cannot mean is refused before the TPM is asked for anything.
func TestInputsOfMessages(t *testing.T) {
	n := newNodeOfTest(t)
	good := n.subject
	if _, err := n.attester.Hello(t.Context(), &n.subject); err != nil {
		t.Fatal(err)
	}
	if _, err := n.answer(t); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Subject)
		good   bool
	}{
		"no cluster":             {func(s *Subject) { s.ClusterID = "" }, false},
		"the longest cluster":    {func(s *Subject) { s.ClusterID = strings.Repeat("c", MaxClusterIDSize) }, true},
		"a longer cluster":       {func(s *Subject) { s.ClusterID = strings.Repeat("c", MaxClusterIDSize+1) }, false},
		"a cluster not in UTF-8": {func(s *Subject) { s.ClusterID = "\xff" }, false},
		"no signer":              {func(s *Subject) { s.SignerName = "" }, false},
		"a longer signer":        {func(s *Subject) { s.SignerName = strings.Repeat("s", MaxSignerNameSize+1) }, false},
		"no lifetime":            {func(s *Subject) { s.ExpirationSeconds = 0 }, true},
		"a lifetime of -1":       {func(s *Subject) { s.ExpirationSeconds = -1 }, false},
		"no request":             {func(s *Subject) { s.Request = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n.subject = good
			c.change(&n.subject)
			n.tpm.SetFaults(nil)
			_, err := n.attester.Hello(t.Context(), &n.subject)
			if c.good != (err == nil) {
				t.Errorf("hello: %v", err)
			}
			if _, err := n.answer(t); err == nil {
				t.Error("another subject's challenge was answered")
			}
			if !c.good && n.tpm.Count() != 0 {
				t.Errorf("sent %v", n.tpm.Names())
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		n.tpm.SetFaults(nil)
		_, err := n.attester.Hello(t.Context(), nil)
		_, err2 := n.attester.Answer(t.Context(), nil, n.key, nil)
		if err == nil || err2 == nil || n.tpm.Count() != 0 {
			t.Errorf("%v, %v, sent %v", err, err2, n.tpm.Names())
		}
	})
}

// A key that is not the request's is not certified, nor is anything for what is no
// challenge.
func TestInputsOfAnswers(t *testing.T) {
	n := newNodeOfTest(t)
	der := must(t, fst(n.challenge.Marshal()), nil)
	for name, c := range map[string]struct {
		challenge []byte
		key       Key
		want      Check
	}{
		"no key":                  {der, nil, ""},
		"another key":             {der, mustSoftwareKey(t, newECDSA(t, elliptic.P256())), CheckKeyMismatch},
		"a key of another kind":   {der, mustSoftwareKey(t, newRSA(t, 2048)), CheckKeyMismatch},
		"no challenge":            {nil, n.key, CheckEncoding},
		"a cut challenge":         {der[:len(der)-1], n.key, CheckEncoding},
		"a challenge and a byte":  {append(bytes.Clone(der), 0), n.key, CheckEncoding},
		"a challenge of road EK":  {must(t, fst((&Challenge{Binding: *testBindingEK(), Credential: &Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}}).Marshal()), nil), n.key, CheckBindingRoad},
		"a challenge for another": {must(t, fst((&Challenge{Binding: *testBinding(), Clear: make([]byte, SecretSize)}).Marshal()), nil), n.key, CheckBindingSigner},
	} {
		t.Run(name, func(t *testing.T) {
			n.tpm.SetFaults(nil)
			_, err := n.attester.Answer(t.Context(), c.challenge, c.key, &n.subject)
			if c.want == "" && err == nil {
				t.Error("accepted")
			}
			if c.want != "" {
				expectCheck(t, err, c.want)
			}
			if count(n.tpm, tpm2.TPMCCCertify) != 0 {
				t.Error("a certify statement was made")
			}
		})
	}
}

// Errors of what the messages are made of are errors of the message.
func TestMessagesOfNothing(t *testing.T) {
	n := newNodeOfTest(t)
	good := &certification{attest: []byte{1}, signature: []byte{1}, public: []byte{1}}
	proof := &Proof{Binding: must(t, fst(testBinding().Marshal()), nil), AKPublic: []byte{1}}
	for name, c := range map[string]struct {
		made  *certification
		proof *Proof
		chain [][]byte
		bad   string
	}{
		"good":             {good, proof, nil, ""},
		"no statement":     {&certification{signature: []byte{1}}, proof, nil, "certify tpmSAttest"},
		"no proof":         {good, &Proof{}, nil, "binding frame"},
		"no certificate":   {good, proof, [][]byte{{1}}, "bundle certificate frame"},
		"a certificate":    {good, proof, [][]byte{{0x30, 0}}, ""},
		"an AK of nothing": {good, &Proof{Binding: proof.Binding}, nil, "proof akPublic"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := answerBundle(&n.subject, c.chain, c.made, c.proof)
			expectField(t, err, c.bad)
		})
	}
	if isRoot([]byte{0x30, 0}) || isRoot(nil) {
		t.Error("what is no certificate is a root")
	}
	p256, other := newECDSA(t, elliptic.P256()).Public(), newECDSA(t, elliptic.P256()).Public()
	for name, c := range map[string]struct {
		a, b crypto.PublicKey
		want bool
	}{
		"itself": {p256, p256, true}, "another": {p256, other, false}, "no key": {nil, p256, false}, "a string": {"key", "key", false},
	} {
		if sameKey(c.a, c.b) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// A credential that the TPM opens and that holds another size of secret is refused.
func TestSizesOfSecrets(t *testing.T) {
	tpm := newTPM(t)
	ek := EKP256()
	ek.CertificateIndex = 0
	a, err := NewAttester(tpm, AKSource{Template: AKTemplateECDSAP256()}, &AttesterOptions{EK: &ek})
	if err != nil {
		t.Fatal(err)
	}
	for size, good := range map[int]bool{1: false, SecretSize - 1: false, SecretSize: true} {
		got, err := do(t, a.tpm, func(ctx context.Context, h *handles) ([]byte, error) {
			keys, err := a.loadKeys(ctx, h)
			if err != nil {
				t.Fatal(err)
			}
			key, err := keys.ek.public.Key()
			if err != nil {
				t.Fatal(err)
			}
			c, err := makeCredential(rand.Reader, key, keys.ak.name, filled(size, 1))
			if err != nil {
				t.Fatal(err)
			}
			return a.openSecret(ctx, h, keys, &Challenge{Credential: c})
		})
		if good && (err != nil || !bytes.Equal(got, filled(size, 1))) || !good && (!errors.Is(err, ErrCredential) || got != nil) {
			t.Errorf("%d bytes: %d, %v", size, len(got), err)
		}
	}
	checkNothingLoaded(t, tpm)
}

// What cannot be flushed is said at Close.
func TestCloseOfAFailingTPM(t *testing.T) {
	n := newNodeOfTest(t)
	n.tpm.SetFaults(tpmsim.FailEvery(tpm2.TPMCCFlushContext, tpm2.TPMRCFailure))
	if _, err := n.attester.Hello(t.Context(), &n.subject); !errors.Is(err, tpm2.TPMRCFailure) {
		t.Fatalf("got %v", err)
	}
	if err := n.attester.Close(t.Context()); err == nil {
		t.Error("closed with a key in the TPM")
	}
	n.tpm.SetFaults(nil)
	if err := n.attester.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkNothingLoaded(t, n.tpm)
}

// A certificate of a node that is none, or that is not there.
func TestCertificatesOfANode(t *testing.T) {
	tpm := newTPM(t)
	ek := EKP256()
	ek.CertificateIndex = 0
	inNV := ek
	inNV.CertificateIndex = 0x01c00555
	bare := AKSource{Template: AKTemplateECDSAP256()}
	missing := AKSource{Template: bare.Template, CertificateIndex: 0x01c00555}
	subject := subjectOfTest(t, newECDSA(t, elliptic.P256()))
	for name, c := range map[string]struct {
		source AKSource
		opts   AttesterOptions
		want   error
	}{
		"an EK's is garbage":        {bare, AttesterOptions{EK: &ek, Certificates: [][]byte{{0x30, 0}}}, CheckCertificateEncoding},
		"an EK's is not there":      {bare, AttesterOptions{EK: &inNV}, ErrNVIndexNotFound},
		"an AK's is not there":      {missing, AttesterOptions{}, ErrNVIndexNotFound},
		"an AK's chain is no chain": {bare, AttesterOptions{Certificates: [][]byte{{0x30, 0}, {4, 0}}}, CheckEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := NewAttester(tpm, c.source, &c.opts)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Hello(t.Context(), &subject); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	checkNothingLoaded(t, tpm)
}
