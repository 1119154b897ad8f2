package tpm

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// What NewProver is given has to name one key and one source of each certificate. The
// TPM is not asked.
func TestInputsOfNewProver(t *testing.T) {
	tpm := tpmsim.Faulty(nil, nil)
	one, two := [][]byte{{0x30, 0}}, [][]byte{{0x30, 0}, {0x30, 0}}
	ek := EKP256()
	inNV := EKP256()
	inNV.CertificateIndex = 0x01c0000a
	ek.CertificateIndex = 0
	bare := AKSource{Template: AKTemplateECDSAP256()}
	for name, c := range map[string]struct {
		source AKSource
		opts   ProverOptions
		good   bool
	}{
		"a certificate in NV":                       {GCERSA(), ProverOptions{}, true},
		"a certificate":                             {bare, ProverOptions{Certificates: one}, true},
		"no certificate":                            {bare, ProverOptions{}, false},
		"an index of 1":                             {AKSource{Template: bare.Template, CertificateIndex: 1}, ProverOptions{}, true},
		"intermediates without a leaf":              {bare, ProverOptions{Intermediates: one}, false},
		"no key":                                    {AKSource{CertificateIndex: 1}, ProverOptions{}, false},
		"two keys":                                  {AKSource{Template: bare.Template, Handle: 0x81000001}, ProverOptions{Certificates: one}, false},
		"a leaf in NV and intermediates":            {GCERSA(), ProverOptions{Intermediates: one}, true},
		"one certificate and intermediates":         {GCERSA(), ProverOptions{Certificates: one, Intermediates: one}, false},
		"two certificates and intermediates":        {GCERSA(), ProverOptions{Certificates: two, Intermediates: one}, false},
		"two certificates and two more":             {GCERSA(), ProverOptions{Certificates: two, Intermediates: two}, false},
		"one certificate and two more":              {GCERSA(), ProverOptions{Certificates: one, Intermediates: two}, false},
		"an EK without a certificate":               {bare, ProverOptions{EK: &ek}, true},
		"an EK of nothing":                          {bare, ProverOptions{EK: &EKOrigin{}}, false},
		"a chain from NV":                           {bare, ProverOptions{EK: &inNV, EKChainFromNV: true}, true},
		"a chain from NV of an AK":                  {GCERSA(), ProverOptions{EKChainFromNV: true}, false},
		"a chain from NV of a bare EK":              {bare, ProverOptions{EK: &ek, EKChainFromNV: true}, false},
		"a chain from NV and certificates":          {bare, ProverOptions{EK: &inNV, EKChainFromNV: true, Certificates: one}, false},
		"a chain from NV and intermediates":         {bare, ProverOptions{EK: &inNV, EKChainFromNV: true, Intermediates: one}, false},
		"an event log that nothing vouches":         {GCERSA(), ProverOptions{EventLog: func(context.Context) ([]byte, error) { return nil, nil }}, false},
		"a quote of nothing":                        {GCERSA(), ProverOptions{Quote: []statement.PCRSelection{}}, false},
		"a quote of a bank without a statement.PCR": {GCERSA(), ProverOptions{Quote: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: make([]byte, 3)}}}, false},
		"a quote of the PCRs that are quoted":       {GCERSA(), ProverOptions{Quote: DefaultPCRs()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewProver(tpm, c.source, c.opts)
			if c.good != (err == nil) || c.good != (p != nil) || !c.good && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, %v", p, err)
			}
		})
	}
	if p, err := NewProver(nil, GCERSA(), ProverOptions{}); !errors.Is(err, refusal.CheckConfig) || p != nil {
		t.Errorf("no TPM: %v, %v", p, err)
	}
	if _, err := AKPublic(t.Context(), nil, GCERSA(), secret.Value[[]byte]{}); err == nil {
		t.Error("AKPublic without a TPM")
	}
	if tpm.Count() != 0 {
		t.Errorf("sent %v", tpm.Commands())
	}
}

func TestAKPublicOfAFailingTPM(t *testing.T) {
	broken := errors.New("broken")
	p, err := AKPublic(t.Context(), tpmsim.Faulty(tpmlab.NewTPM(t), tpmsim.FailAt(1, broken)), GCERSA(), secret.Value[[]byte]{})
	if !errors.Is(err, broken) || p != nil {
		t.Errorf("got %v, %v", p, err)
	}
}

// nodeOfTest is an attester on road AK over a TPM that records what is sent to it, the
// key of its request, and a challenge that it answers.
type nodeOfTest struct {
	tpm       *tpmsim.FaultyTPM
	attester  *attest.Attester
	key       tpmkey.Certifiable
	subject   attest.Subject
	challenge message.Challenge
}

func newNodeOfTest(t *testing.T) *nodeOfTest {
	t.Helper()
	tpm := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}})
	private := tpmlab.NewECDSA(t, elliptic.P256())
	n := &nodeOfTest{tpm: tpmsim.Faulty(tpm, nil), key: mustSoftwareKey(t, private), subject: subjectOfTest(t, private)}
	n.attester = newTestAttester(t, n.tpm, GCERSA(), ProverOptions{})
	b := message.Binding{IssuedAt: 1_800_000_000, NotAfter: 1_800_000_600, ClusterID: n.subject.ClusterID, SignerName: n.subject.SignerName,
		ExpirationSeconds: n.subject.ExpirationSeconds}
	parsed, err := csr.ParsePKCS10(n.subject.Request)
	if err != nil {
		t.Fatal(err)
	}
	b.RequestHash = parsed.InfoHash
	if b.MachineKey, err = csr.SPKIHash(tpm.AKPublic(tpmsim.RSA2048)); err != nil {
		t.Fatal(err)
	}
	n.challenge = message.Challenge{Binding: b, Clear: make([]byte, message.SecretSize)}
	return n
}

// testProofOf is the DER of a proof on road AK.
func testProofOf(t *testing.T) []byte {
	t.Helper()
	b := &message.Binding{ClusterID: "cluster", SignerName: csr.SignerClientTPM}
	return tpmlab.Must((&message.Proof{Binding: tpmlab.Must(b.Marshal()), AKPublic: []byte{1}}).Marshal())
}

// A subject that the node cannot mean is refused before the TPM is asked for anything.
func TestSubjectsBeforeTheTPM(t *testing.T) {
	n := newNodeOfTest(t)
	challenge := tpmlab.Must(n.challenge.Marshal())
	if _, err := n.attester.Hello(t.Context(), n.subject); err != nil {
		t.Fatal(err)
	}
	if _, err := n.attester.Answer(t.Context(), challenge, n.key, n.subject); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*attest.Subject){
		"no cluster":       func(s *attest.Subject) { s.ClusterID = "" },
		"no signer":        func(s *attest.Subject) { s.SignerName = "" },
		"a lifetime of -1": func(s *attest.Subject) { s.ExpirationSeconds = -1 },
		"no request":       func(s *attest.Subject) { s.Request = nil },
		"nothing":          func(s *attest.Subject) { *s = attest.Subject{} },
	} {
		t.Run(name, func(t *testing.T) {
			subject := n.subject
			change(&subject)
			n.tpm.SetFaults(nil)
			_, err := n.attester.Hello(t.Context(), subject)
			_, err2 := n.attester.Answer(t.Context(), challenge, n.key, subject)
			if err == nil || err2 == nil || n.tpm.Count() != 0 {
				t.Errorf("%v, %v, sent %v", err, err2, n.tpm.Commands())
			}
		})
	}
}

// A key that is not the request's is not certified by the TPM, nor is anything for what is
// no challenge of this node's.
func TestNothingIsCertified(t *testing.T) {
	n := newNodeOfTest(t)
	changed := func(change func(*message.Challenge)) []byte {
		c := n.challenge
		change(&c)
		return tpmlab.Must(c.Marshal())
	}
	der := changed(func(*message.Challenge) {})
	onEK := changed(func(c *message.Challenge) {
		c.Binding.Road, c.Binding.AKName, c.Clear = message.RoadEK, append([]byte{0, 0x0b}, make([]byte, 32)...), nil
		c.Credential = &message.Credential{IDObject: []byte{1}, EncryptedSecret: []byte{2}}
	})
	for name, c := range map[string]struct {
		challenge []byte
		key       crypto.Signer
		want      refusal.Check
	}{
		"another key":             {der, mustSoftwareKey(t, tpmlab.NewECDSA(t, elliptic.P256())), refusal.Check("key-mismatch")},
		"a key of another kind":   {der, mustSoftwareKey(t, tpmlab.RSA2048()), refusal.Check("key-mismatch")},
		"no challenge":            {nil, n.key, refusal.Check("message-encoding")},
		"a cut challenge":         {der[:len(der)-1], n.key, refusal.Check("message-encoding")},
		"a challenge and a byte":  {append(bytes.Clone(der), 0), n.key, refusal.Check("message-encoding")},
		"a challenge of road EK":  {onEK, n.key, attest.CheckBindingRoad},
		"a challenge for another": {changed(func(c *message.Challenge) { c.Binding.SignerName = "example.com/signer" }), n.key, attest.CheckBindingSigner},
		"of another AK":           {changed(func(c *message.Challenge) { c.Binding.MachineKey[0] ^= 1 }), n.key, attest.CheckBindingMachineKey},
	} {
		t.Run(name, func(t *testing.T) {
			n.tpm.SetFaults(nil)
			spec, err := n.attester.Answer(t.Context(), c.challenge, c.key, n.subject)
			if err == nil || spec != nil {
				t.Error("accepted")
			}
			if c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if tpmlab.Count(n.tpm, tpm2.TPMCCCertify) != 0 {
				t.Error("a certify statement was made")
			}
		})
	}
	tpmlab.CheckNothingLoaded(t, n.tpm)
}

// What is no certificate is no root, and a statement of nothing is none.
func TestMessagesOfNothing(t *testing.T) {
	if isRoot([]byte{0x30, 0}) || isRoot(nil) {
		t.Error("what is no certificate is a root")
	}
	root := tpmlab.Sign(t, nil, "root", nil)
	inCapitals := *root.Cert
	inCapitals.RawSubject = bytes.ToUpper(root.Cert.RawSubject)
	if again := tpmlab.Sign(t, &tpmlab.CA{Cert: &inCapitals, Key: root.Key}, "root", nil); !isRoot(root.Cert.Raw) || !isRoot(again.Cert.Raw) ||
		isRoot(tpmlab.Sign(t, root, "no root", nil).Cert.Raw) {
		t.Error("isRoot is wrong about a root, or about another certificate")
	}
	good := statement.CertifyEvidence{Attest: []byte{1}, Signature: []byte{1}, Public: []byte{1}}
	if _, err := statement.MarshalTCGAttestCertify(&good); err != nil {
		t.Error(err)
	}
	good.Attest = nil
	_, err := statement.MarshalTCGAttestCertify(&good)
	expectField(t, err, "certify tpmSAttest")
}

// A credential that the TPM opens and that holds another size of secret is refused.
func TestSizesOfSecrets(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	ek := EKP256()
	ek.CertificateIndex = 0
	p, err := NewProver(tpm, AKSource{Template: AKTemplateECDSAP256()}, ProverOptions{EK: &ek})
	if err != nil {
		t.Fatal(err)
	}
	for size, good := range map[int]bool{1: false, message.SecretSize - 1: false, message.SecretSize: true} {
		err := p.Use(t.Context(), attest.StageAnswer, func(lent attest.Session) error {
			s := lent.(*session)
			key, err := s.ek.Public.Key()
			if err != nil {
				t.Fatal(err)
			}
			c, err := makeCredential(rand.Reader, key, s.ak.Name, filled(size, 1))
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Open(t.Context(), c)
			if good && (err != nil || !bytes.Equal(got, filled(size, 1))) || !good && (!errors.Is(err, checkCredential) || got != nil) {
				t.Errorf("%d bytes: %d, %v", size, len(got), err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// A node on road AK opens no credential.
func TestCredentialsOnRoadAK(t *testing.T) {
	n := newNodeOfTest(t)
	p, err := NewProver(n.tpm, GCERSA(), ProverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Use(t.Context(), attest.StageAnswer, func(s attest.Session) error {
		_, err := s.Open(t.Context(), &attest.Credential{IDObject: []byte{1}, EncryptedSecret: []byte{1}})
		return err
	})
	if !errors.Is(err, checkCredential) || tpmlab.Count(n.tpm, tpm2.TPMCCActivateCredential) != 0 {
		t.Errorf("got %v", err)
	}
}

// What cannot be flushed is said at Close.
func TestCloseOfAFailingTPM(t *testing.T) {
	n := newNodeOfTest(t)
	n.tpm.SetFaults(tpmsim.FailEvery(tpm2.TPMCCFlushContext, tpm2.TPMRCFailure))
	if _, err := n.attester.Hello(t.Context(), n.subject); !errors.Is(err, tpm2.TPMRCFailure) {
		t.Fatalf("got %v", err)
	}
	if err := n.attester.Close(); err == nil {
		t.Error("closed with a key in the TPM")
	}
	n.tpm.SetFaults(nil)
	if err := n.attester.Close(); err != nil {
		t.Error(err)
	}
	tpmlab.CheckNothingLoaded(t, n.tpm)
}

// A certificate of a node that is none, or that is not there. That of an EK may be missing: see
// TestEKWithoutCertificate.
func TestCertificatesOfANode(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	ek := EKP256()
	ek.CertificateIndex = 0
	bare := AKSource{Template: AKTemplateECDSAP256()}
	missing := AKSource{Template: bare.Template, CertificateIndex: 0x01c00555}
	subject := subjectOfTest(t, tpmlab.NewECDSA(t, elliptic.P256()))
	for name, c := range map[string]struct {
		source AKSource
		opts   ProverOptions
		want   error
	}{
		"an EK's is garbage":        {bare, ProverOptions{EK: &ek, Certificates: [][]byte{{0x30, 0}}}, tpmcert.CheckCertificateEncoding},
		"an AK's is not there":      {missing, ProverOptions{}, tpmkey.ErrNVIndexNotFound},
		"an AK's chain is no chain": {bare, ProverOptions{Certificates: [][]byte{{0x30, 0}, {4, 0}}}, refusal.Check("message-encoding")},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newTestAttester(t, tpm, c.source, c.opts).Hello(t.Context(), subject); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}
