package tpm

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// sentEK is an EK as a node sends it.
type sentEK struct {
	Certificates [][]byte
	PublicKey    []byte
}

// verifyEKOf parses and verifies a node's EK.
func verifyEKOf(ctx context.Context, v *tpmcert.EKVerifier, sent *sentEK, machine *csr.Machine, now time.Time) (*tpmcert.EKFacts, error) {
	if sent == nil {
		return v.Verify(ctx, nil, machine, now, nil)
	}
	p, err := tpmcert.ParseEKPresented(sent.Certificates, sent.PublicKey)
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, p, machine, now, nil)
}

func sameTestKey(a, b crypto.PublicKey) bool {
	return a.(interface{ Equal(crypto.PublicKey) bool }).Equal(b)
}

// expectField expects a refusal for one field.
func expectField(t *testing.T, err error, bad string) {
	t.Helper()
	tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	if e, ok := errors.AsType[*refusal.Error](err); ok && e.Got != "a bad "+bad {
		t.Errorf("got %q, want a bad %s", e.Got, bad)
	}
}

// subjectOfTest is a request for the key.
func subjectOfTest(t *testing.T, private crypto.Signer) attest.Subject {
	t.Helper()
	request, err := csr.Create(csr.PurposeClient, private, "node-1", csr.CreateOptions{})
	testkit.NoError(t, err)
	return attest.Subject{Request: request, SignerName: csr.SignerClientTPM, ClusterID: "cluster"}
}

// newTestAttester is an attester with a TPM's evidence.
func newTestAttester(t testing.TB, tpm transport.TPM, source AKSource, o ProverOptions) *attest.Attester {
	t.Helper()
	p, err := NewProver(tpm, source, o)
	testkit.NoError(t, err)
	a, err := attest.NewAttester(p)
	testkit.NoError(t, err)
	return a
}

// do is tpmop.Shared.do for tests, with the result that f computes.
func do[T any](t testing.TB, tpm transport.TPM, f func(ctx context.Context, h *tpmop.Handles) (T, error)) (T, error) {
	t.Helper()
	var v T
	err := tpmop.Share(tpm).Do(t.Context(), func(h *tpmop.Handles) (err error) {
		v, err = f(t.Context(), h)
		return err
	})
	return v, err
}

func mustSoftwareKey(t testing.TB, priv crypto.Signer) tpmkey.Certifiable {
	t.Helper()
	k, err := tpmkey.SoftwareKey(priv)
	testkit.NoError(t, err)
	return k
}

func mustTPMKey(t testing.TB, tpm transport.TPM, kind tpmkey.Algorithm) *tpmkey.Key {
	t.Helper()
	k, err := tpmkey.Create(t.Context(), tpm, kind, tpmkey.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// signatureBytes gives a TPMT_SIGNATURE the form that crypto.Signer promises.
func signatureBytes(s *tpm2.TPMTSignature) ([]byte, error) {
	switch s.SigAlg {
	case tpm2.TPMAlgECDSA:
		rs, err := s.Signature.ECDSA()
		if err != nil {
			return nil, err
		}
		var b cryptobyte.Builder
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1BigInt(new(big.Int).SetBytes(rs.SignatureR.Buffer))
			b.AddASN1BigInt(new(big.Int).SetBytes(rs.SignatureS.Buffer))
		})
		return b.Bytes()
	case tpm2.TPMAlgRSASSA:
		sig, err := s.Signature.RSASSA()
		if err != nil {
			return nil, err
		}
		return sig.Sig.Buffer, nil
	case tpm2.TPMAlgRSAPSS:
		sig, err := s.Signature.RSAPSS()
		if err != nil {
			return nil, err
		}
		return sig.Sig.Buffer, nil
	}
	return nil, fmt.Errorf("the TPM's signature has the algorithm 0x%04x", uint16(s.SigAlg))
}

var pcr23 = []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0x80}}}

// throughFile is what brings a key back in another process.
func throughFile(t testing.TB, k *tpmkey.Key) *tpmkey.File {
	t.Helper()
	b, err := k.File().Marshal()
	testkit.NoError(t, err)
	file, err := tpmkey.ParseFile(b)
	testkit.NoError(t, err)
	return file
}

var p256 = elliptic.P256()

const ownIndex tpm2.TPMHandle = 0x01800001

const testIndex tpm2.TPMHandle = 0x01800001

// header puts a TCG_PCCLIENT_STORED_CERT header before a certificate.
func header(der []byte, withTag bool) []byte {
	if withTag {
		der = append([]byte{0x10, 0x02}, der...)
	}
	return append([]byte{0x10, 0x01, 0x00, byte(len(der) >> 8), byte(len(der))}, der...)
}

func handleName(h tpm2.TPMHandle) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(h))
}

// appendName appends alg and the digest of message, or nothing for an algorithm
// that is not ours.
func appendName(out []byte, alg tpm2.TPMAlgID, message []byte) []byte {
	h := tpmwire.HashOf(alg)
	if h == 0 {
		return out
	}
	return tpmwire.AppendDigest(binary.BigEndian.AppendUint16(out, uint16(alg)), h, message)
}

// pcrsPerBank is how many PCRs a bank of a PC Client platform has: TCG PC Client
// Platform TPM Profile 1.05, 5.4.1.
const pcrsPerBank = 24

// quoteForgery is a quote before it is marshalled and signed, by a key in software. A
// test changes one thing of a good one.
type quoteForgery struct {
	ak        *softak.AK
	attest    *statement.Attestation
	pcrs      []statement.PCR
	scheme    statement.KeyScheme
	patch     func(attest []byte) []byte
	signature func(*statement.Signature)
	options   statement.QuoteOptions
}

// goodQuoteForgery quotes PCRs 0 to 7 of SHA-256, by a primary key of the endorsement
// hierarchy.
func goodQuoteForgery(t testing.TB, ak *softak.AK) *quoteForgery {
	t.Helper()
	selection, err := statement.NewPCRSelection(tpm2.TPMAlgSHA256, 0, 1, 2, 3, 4, 5, 6, 7)
	testkit.NoError(t, err)
	f := &quoteForgery{ak: ak, scheme: ak.Public.Scheme, attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestQuote,
		QualifiedSigner: ak.Primary(),
		ExtraData:       qualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 1,
		Quote: &statement.QuoteInfo{},
	}}
	f.selectPCRs(selection)
	f.options = statement.QuoteOptions{AK: statement.AKFromCredential(ak.Public.Raw), QualifyingData: qualifyingData}
	return f
}

// selectPCRs quotes these, with values that follow from bank and index.
func (f *quoteForgery) selectPCRs(selections ...statement.PCRSelection) {
	f.attest.Quote.Selections, f.pcrs = selections, nil
	for _, s := range selections {
		for _, i := range s.PCRs() {
			value := bytes.Repeat([]byte{byte(0x10 + i)}, tpmwire.HashOf(s.Hash).Size())
			f.pcrs = append(f.pcrs, statement.PCR{Bank: s.Hash, Index: i, Value: value})
		}
	}
	f.digest()
}

// digest computes the TPM's digest: written anew, as a reference.
func (f *quoteForgery) digest() {
	h := tpmwire.HashOf(f.scheme.Hash).New()
	for _, p := range f.pcrs {
		h.Write(p.Value)
	}
	f.attest.Quote.PCRDigest = h.Sum(nil)
}

func (f *quoteForgery) evidence(t testing.TB) *statement.QuoteEvidence {
	t.Helper()
	attest, err := f.attest.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	if f.patch != nil {
		attest = f.patch(attest)
	}
	v := f.ak.Sign(f.scheme, attest)
	if f.signature != nil {
		f.signature(v)
	}
	sig, err := v.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	return &statement.QuoteEvidence{Attest: attest, Signature: sig, PCRs: f.pcrs}
}

// certifyForgery is a certify statement before it is marshalled and signed. A test changes
// one thing of a good one.
type certifyForgery struct {
	AK        *softak.AK
	Attest    *statement.Attestation
	Public    *statement.Public                        // certified
	Scheme    statement.KeyScheme                      // signed with
	Patch     func(attest []byte) []byte               // before signing
	Signature func(tpmtSignature *statement.Signature) // after signing
	After     func(*statement.CertifyEvidence)         // last
	Options   statement.CertifyOptions
}

// Resident makes the statement name a resident public area.
func (f *certifyForgery) Resident(public *statement.Public) {
	f.Public = public
	parent := statement.QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.AK.Public.Name()) // any parent will do
	f.Attest.Certified = &statement.CertifyInfo{Name: public.Name(), QualifiedName: statement.QualifiedName(parent, public.Name())}
}

// Evidence signs the statement.
func (f *certifyForgery) Evidence(t testing.TB) *statement.CertifyEvidence {
	t.Helper()
	attest, err := f.Attest.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	if f.Patch != nil {
		attest = f.Patch(attest)
	}
	v := f.AK.Sign(f.Scheme, attest)
	if f.Signature != nil {
		f.Signature(v)
	}
	sig, err := v.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	e := &statement.CertifyEvidence{Attest: attest, Signature: sig, Public: f.Public.Raw}
	if f.After != nil {
		f.After(e)
	}
	return e
}

// qualifyingData is that of the statements here.
var qualifyingData = []byte{0x00, 0xff, 0x55, 0xaa}

// goodCertifyForgery is a statement that is accepted: a TPM-resident key, certified by a
// primary key of the endorsement hierarchy.
func goodCertifyForgery(t testing.TB, ak *softak.AK, key crypto.PublicKey) *certifyForgery {
	t.Helper()
	public := softak.PublicArea(key, softak.ResidentAttributes, softak.NoScheme)
	f := &certifyForgery{AK: ak, Public: public, Scheme: ak.Public.Scheme, Attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestCertify,
		QualifiedSigner: ak.Primary(),
		ExtraData:       qualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
	}}
	f.Resident(public)
	f.Options = statement.CertifyOptions{AK: statement.AKFromCredential(ak.Public.Raw), QualifyingData: qualifyingData, Key: key}
	return f
}

// leafUnder is an AK's certificate by the CA.
func leafUnder(t testing.TB, ca *tpmlab.Cert) []byte {
	t.Helper()
	leaf := tpmlab.AKCert(ca.Subject, tpmlab.NewP256(t).Public())
	leaf.Algorithm = tpmlab.AlgorithmOf(ca.Key.Public())
	return leaf.Sign(t, ca.Key)
}

func ekVerifierOf(t testing.TB, c tpmcert.EKVerifierConfig) *tpmcert.EKVerifier {
	t.Helper()
	v, err := tpmcert.NewEKVerifier(c)
	testkit.NoError(t, err)
	return v
}

func trusting(p tpmcert.EKProfile, roots ...*tpmlab.CA) tpmcert.EKVerifierConfig {
	i := tpmcert.EKIssuer{Profile: p}
	for _, r := range roots {
		i.Roots = append(i.Roots, r.Cert)
	}
	return tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{i}}
}

func verifyAt(v *tpmcert.EKVerifier, at time.Time, certs ...*x509.Certificate) (*tpmcert.EKFacts, error) {
	ek := &sentEK{}
	for _, c := range certs {
		ek.Certificates = append(ek.Certificates, c.Raw)
	}
	return verifyEKOf(context.Background(), v, ek, nil, at)
}

func filled(n int, first byte) []byte {
	b := bytes.Repeat([]byte{0xa5}, n)
	if n > 0 {
		b[0] = first
	}
	return b
}
