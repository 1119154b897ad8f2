package tpm

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// testCA signs certificates.
type testCA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var chainTime = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

func newTestKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign issues a certificate; edit may change the template. A nil parent is a
// root.
func sign(t testing.TB, parent *testCA, name string, edit func(*x509.Certificate)) *testCA {
	t.Helper()
	key := newTestKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    chainTime.Add(-24 * time.Hour), NotAfter: chainTime.Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if edit != nil {
		edit(template)
	}
	issuerCert, signer := template, crypto.Signer(key)
	if parent != nil {
		issuerCert, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuerCert, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &testCA{cert, key}
}

var p256 = elliptic.P256()

const ownIndex tpm2.TPMHandle = 0x01800001

// certificateOf makes a certificate with an extension of some bytes.
func certificateOf(t testing.TB, extra int) []byte {
	t.Helper()
	key := newECDSA(t, p256)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: bytes.Repeat([]byte{5}, extra)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

const testIndex tpm2.TPMHandle = 0x01800001

// header puts a TCG_PCCLIENT_STORED_CERT header before a certificate.
func header(der []byte, withTag bool) []byte {
	if withTag {
		der = append([]byte{0x10, 0x02}, der...)
	}
	return append([]byte{0x10, 0x01, 0x00, byte(len(der) >> 8), byte(len(der))}, der...)
}

func withoutLeadingZeros(v []byte) []byte {
	for len(v) > 0 && v[0] == 0 {
		v = v[1:]
	}
	return v
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
	ak        *forger
	attest    *statement.Attestation
	pcrs      []statement.PCR
	scheme    statement.KeyScheme
	patch     func(attest []byte) []byte
	signature func(*statement.Signature)
	options   statement.QuoteOptions
}

// goodQuoteForgery quotes PCRs 0 to 7 of SHA-256, by a primary key of the endorsement
// hierarchy.
func goodQuoteForgery(t testing.TB, ak *forger) *quoteForgery {
	t.Helper()
	selection, err := statement.NewPCRSelection(tpm2.TPMAlgSHA256, 0, 1, 2, 3, 4, 5, 6, 7)
	if err != nil {
		t.Fatal(err)
	}
	f := &quoteForgery{ak: ak, scheme: ak.public.Scheme, attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestQuote,
		QualifiedSigner: statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.public.Name()),
		ExtraData:       testQualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 1,
		Quote: &statement.QuoteInfo{},
	}}
	f.selectPCRs(selection)
	f.options = statement.QuoteOptions{AK: statement.AKFromCredential(ak.public.Raw), QualifyingData: testQualifyingData}
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

// digest computes what the TPM would: written anew, as a reference.
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
	v := f.ak.sign(t, f.scheme, attest)
	if f.signature != nil {
		f.signature(v)
	}
	sig, err := v.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	return &statement.QuoteEvidence{Attest: attest, Signature: sig, PCRs: f.pcrs}
}
