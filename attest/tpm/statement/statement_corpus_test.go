package statement

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"

	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

type recordedStatement struct {
	name     string
	evidence CertifyEvidence
	options  CertifyOptions
	leaf     *x509.Certificate
	meta     struct {
		ExtraData         string `json:"extraData"`
		AttestedName      string `json:"attestedName"`
		PubareaAttributes string `json:"pubarea_attributes"`
		SigAlg            string `json:"sig_alg"`
	}
}

// webauthnStatements reads every statement of webauthn-tpm/, to be held against its
// AK certificate's key and the qualifying data of meta.json.
func webauthnStatements(t *testing.T) []*recordedStatement {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(tpmlab.CorpusDir(t), "webauthn-tpm", "*", "certinfo.bin"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no statements (%v)", err)
	}
	statements := make([]*recordedStatement, 0, len(paths))
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		read := func(file string) []byte { return tpmlab.Corpus(t, "webauthn-tpm", name, file) }
		s := &recordedStatement{name: name}
		testkit.NoError(t, json.Unmarshal(read("meta.json"), &s.meta))
		if s.leaf, err = x509.ParseCertificate(read("x5c-0.der")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.evidence = CertifyEvidence{Attest: read("certinfo.bin"), Signature: read("sig.tpmt.bin"), Public: read("pubarea.bin")}
		s.options = CertifyOptions{
			AK: AKFromIssuer(s.leaf.PublicKey, nil), QualifyingData: unhex(t, s.meta.ExtraData),
			InsecureAllowAnyKey: true, InsecureAllowSHA1Signature: true,
		}
		statements = append(statements, s)
	}
	return statements
}

func TestCorpusWebAuthn(t *testing.T) {
	want := map[string]refusal.Check{
		"synthetic-fidofake-rsakey-03": CheckMagic,
		"synthetic-nosan-rsakey-01":    checkSignature,
		"synthetic-w3c-ecckey-01":      checkAttestEncoding,
	}
	for _, s := range webauthnStatements(t) {
		t.Run(s.name, func(t *testing.T) {
			got, err := VerifyCertify(&s.evidence, s.options)
			tpmlab.ExpectCheck(t, err, want[s.name])
			if err != nil {
				if s.name == "synthetic-w3c-ecckey-01" && !strings.Contains(err.Error(), "safe 0x33") {
					t.Errorf("refused for another reason: %v", err)
				}
				return
			}
			if strings.HasPrefix(s.name, "real-") && !got.TPMResident {
				t.Error("not resident")
			}
			if got.ClockTrusted {
				t.Error("clock trusted without the attestation key's Name")
			}
			if tpmwire.HexNumber(uint64(got.Public.Attributes), 0) != s.meta.PubareaAttributes {
				t.Errorf("attributes %v, recorded as %s", got.Public.Attributes, s.meta.PubareaAttributes)
			}
			if hex.EncodeToString(got.Attestation.Certified.Name) != s.meta.AttestedName {
				t.Errorf("Name %x", got.Attestation.Certified.Name)
			}
			recordedChangesAreRefused(t, s, got)
		})
	}
}

// recordedChangesAreRefused: one change each to options that a good statement meets.
func recordedChangesAreRefused(t *testing.T, s *recordedStatement, got *Certified) {
	t.Helper()
	try := func(want refusal.Check, change func(*CertifyOptions)) {
		t.Helper()
		o := s.options
		change(&o)
		_, err := VerifyCertify(&s.evidence, o)
		tpmlab.ExpectCheck(t, err, want)
	}
	if got.SignatureScheme.Hash == tpm2.TPMAlgSHA1 {
		// Because of SHA-1 and nothing else: allowed, it is accepted above.
		try(CheckSignatureHash, func(o *CertifyOptions) { o.InsecureAllowSHA1Signature = false })
	}
	try(message.CheckQualifyingData, func(o *CertifyOptions) { o.QualifyingData = o.QualifyingData[1:] })
	key, err := got.Public.Key()
	testkit.NoError(t, err)
	try("", func(o *CertifyOptions) { o.InsecureAllowAnyKey, o.Key = false, key })
	try(message.CheckKeyMismatch, func(o *CertifyOptions) { o.InsecureAllowAnyKey, o.Key = false, tpmlab.P256().Public() })
	try(checkSignature, func(o *CertifyOptions) { o.AK.key = tpmlab.RSA2048().Public() })
	try(checkSignatureScheme, func(o *CertifyOptions) { o.AK.key = tpmlab.P256().Public() })
	raw := s.evidence
	raw.Signature = tpmlab.Corpus(t, "webauthn-tpm", s.name, "sig.bin")
	raw.RawSignature = &KeyScheme{Alg: got.SignatureScheme.Alg, Hash: got.SignatureScheme.Hash}
	if _, err := VerifyCertify(&raw, s.options); err != nil {
		t.Errorf("the bare signature: %v", err)
	}
}

// TestCorpusWebAuthnReal: every real statement is there, and each is SHA-1.
func TestCorpusWebAuthnReal(t *testing.T) {
	count := 0
	for _, s := range webauthnStatements(t) {
		if !strings.HasPrefix(s.name, "real-") {
			continue
		}
		count++
		s.options.InsecureAllowSHA1Signature = false
		s.options.RequireTPMResident = true
		_, err := VerifyCertify(&s.evidence, s.options)
		tpmlab.ExpectCheck(t, err, CheckSignatureHash)
	}
	if count != 9 {
		t.Errorf("%d real statements, want 9", count)
	}
}

// TestCorpusW3C: the vector's only faults are those that no TPM makes.
func TestCorpusW3C(t *testing.T) {
	for _, s := range webauthnStatements(t) {
		if s.name != "synthetic-w3c-ecckey-01" {
			continue
		}
		attest := append([]byte{}, s.evidence.Attest...)
		attest[4+2+2+2+32+16] = 1 // safe; the signature is over 0x33
		a, err := ParseAttestation(attest)
		testkit.NoError(t, err)
		if len(a.QualifiedSigner) != 0 || len(a.Certified.QualifiedName) != 0 {
			t.Errorf("got %+v", a)
		}
		s.evidence.Attest = attest
		_, err = VerifyCertify(&s.evidence, s.options)
		tpmlab.ExpectCheck(t, err, checkQualifiedSigner)
	}
}

// TestCorpusAzure: a production vTPM certified an RSAES key with empty qualifying
// data and a bare signature.
func TestCorpusAzure(t *testing.T) {
	read := func(file string) []byte { return tpmlab.Corpus(t, "azure-vtpm-linux", file) }
	leaf, err := x509.ParseCertificate(read("ak-cert.der"))
	testkit.NoError(t, err)
	e := &CertifyEvidence{
		Attest: read("attest.bin"), Signature: read("sig.raw.bin"), Public: read("key.tpmt"),
		RawSignature: &KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256},
	}
	key, err := ParsePublic(e.Public)
	testkit.NoError(t, err)
	if key.Attributes != 0x20432 || key.Scheme.Alg != tpm2.TPMAlgRSAES {
		t.Errorf("attributes %v, scheme %v", key.Attributes, key.Scheme)
	}
	expected, err := key.Key()
	testkit.NoError(t, err)
	o := CertifyOptions{
		AK: AKFromIssuer(leaf.PublicKey, read("ak.tpmt")), InsecureEmptyQualifyingData: true, Key: expected,
		AllowDecryptionKey: true, RequireTPMResident: true,
	}
	got, err := VerifyCertify(e, o)
	testkit.NoError(t, err)
	if !got.TPMResident || got.AKPublic.Attributes != 0x50472 || len(got.Attestation.ExtraData) != 0 {
		t.Errorf("got %+v", got)
	}
	t.Logf("clock trusted: %v, reset count %d", got.ClockTrusted, got.Attestation.ResetCount)
	for want, change := range map[refusal.Check]func(*CertifyOptions){
		checkKeyAttributes:          func(o *CertifyOptions) { o.AllowDecryptionKey = false },
		message.CheckQualifyingData: func(o *CertifyOptions) { o.QualifyingData, o.InsecureEmptyQualifyingData = []byte{0}, false },
		checkCertifyOptions:         func(o *CertifyOptions) { o.InsecureEmptyQualifyingData = false },
		CheckAKMismatch:             func(o *CertifyOptions) { o.AK.key = tpmlab.RSA2048().Public() },
		message.CheckKeyMismatch:    func(o *CertifyOptions) { o.Key = tpmlab.RSA2048().Public() },
		checkAKIsCertifiedKey:       func(o *CertifyOptions) { o.AK = AKFromCredential(e.Public) },
	} {
		again := o
		change(&again)
		_, err := VerifyCertify(e, again)
		tpmlab.ExpectCheck(t, err, want)
	}
	pss := *e
	pss.RawSignature = &KeyScheme{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA256}
	_, err = VerifyCertify(&pss, o)
	tpmlab.ExpectCheck(t, err, checkSignatureScheme)
	quote := *e
	quote.Attest, quote.Signature = read("quote.bin"), read("quote.sig.raw.bin")
	_, err = VerifyCertify(&quote, o)
	tpmlab.ExpectCheck(t, err, checkStatementType)
}

// TestCorpusLAMPS: the sample request of draft-ietf-lamps-csr-attestation carries its
// statement as an attribute, with a bare signature.
func TestCorpusLAMPS(t *testing.T) {
	block, _ := pem.Decode(tpmlab.Corpus(t, "lamps", "tcg-attest-certify-csr.pem"))
	if block == nil {
		t.Fatal("no PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	testkit.NoError(t, err)
	e, certificates := lampsStatement(t, csr.RawTBSCertificateRequest)
	e.RawSignature = &KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	accepted := 0
	for _, der := range certificates {
		certificate, err := x509.ParseCertificate(der)
		testkit.NoError(t, err)
		got, err := VerifyCertify(e, CertifyOptions{AK: AKFromIssuer(certificate.PublicKey, nil), QualifyingData: testQualifyingData, Key: csr.PublicKey})
		if err != nil {
			tpmlab.ExpectCheck(t, err, checkSignature)
			continue
		}
		accepted++
		t.Logf("%s certifies a key with %v, resident %v", certificate.Subject, got.Public.Attributes, got.TPMResident)
		_, err = VerifyCertify(e, CertifyOptions{AK: AKFromIssuer(certificate.PublicKey, nil), QualifyingData: testQualifyingData[:3], Key: csr.PublicKey})
		tpmlab.ExpectCheck(t, err, message.CheckQualifyingData)
	}
	if accepted != 1 {
		t.Errorf("verifies under %d of %d certificates, want 1", accepted, len(certificates))
	}
}

// lampsStatement finds the one certify statement and the certificates in the
// attribute id-aa-attestation of a CertificationRequestInfo. It reads the frame by
// hand, so that it tests the parsers of this package against the standard alone.
func lampsStatement(t *testing.T, info []byte) (*CertifyEvidence, [][]byte) {
	t.Helper()
	attributes := asn1.Tag(0).ContextSpecific().Constructed()
	s := cryptobyte.String(info)
	var body, list, attribute, values, bundle, statements, statement, one, certs cryptobyte.String
	if !s.ReadASN1(&body, asn1.SEQUENCE) || !body.SkipASN1(asn1.INTEGER) || !body.SkipASN1(asn1.SEQUENCE) ||
		!body.SkipASN1(asn1.SEQUENCE) || !body.ReadASN1(&list, attributes) {
		t.Fatal("no attributes")
	}
	id := unhex(t, "2a864886f70d010910023b") // 1.2.840.113549.1.9.16.2.59
	for !list.Empty() {
		var oid cryptobyte.String
		if !list.ReadASN1(&attribute, asn1.SEQUENCE) || !attribute.ReadASN1(&oid, asn1.OBJECT_IDENTIFIER) {
			t.Fatal("no attribute")
		}
		if string(oid) == string(id) {
			break
		}
	}
	e := &CertifyEvidence{}
	if !attribute.ReadASN1(&values, asn1.SET) || !values.ReadASN1(&bundle, asn1.SEQUENCE) ||
		!bundle.ReadASN1(&statements, asn1.SEQUENCE) || !statements.ReadASN1(&statement, asn1.SEQUENCE) || !statements.Empty() ||
		!statement.SkipASN1(asn1.OBJECT_IDENTIFIER) || !statement.ReadASN1(&one, asn1.SEQUENCE) ||
		!one.ReadASN1Bytes(&e.Attest, asn1.OCTET_STRING) || !one.ReadASN1Bytes(&e.Signature, asn1.OCTET_STRING) ||
		!one.ReadASN1Bytes(&e.Public, asn1.OCTET_STRING) || !one.Empty() || !bundle.ReadASN1(&certs, asn1.SEQUENCE) {
		t.Fatal("no certify statement")
	}
	var all [][]byte
	for !certs.Empty() {
		var der cryptobyte.String
		if !certs.ReadASN1Element(&der, asn1.SEQUENCE) {
			t.Fatal("no certificate")
		}
		all = append(all, der)
	}
	return e, all
}

// TestCorpusQuotes: the quotes of production vTPMs parse and marshal to themselves.
func TestCorpusQuotes(t *testing.T) {
	quote := tpmlab.Corpus(t, "azure-vtpm-linux", "quote.bin")
	a, err := ParseAttestation(quote)
	testkit.NoError(t, err)
	out, err := a.Marshal()
	if err != nil || string(out) != string(quote) || a.Quote == nil || len(a.Quote.PCRDigest) != 32 {
		t.Errorf("got %+v, %x (%v)", a.Quote, out, err)
	}
}
