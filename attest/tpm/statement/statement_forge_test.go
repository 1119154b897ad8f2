package statement

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"

	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// The forgers of this file hold attestation keys in software. They sign whatever a
// test asks for, so that every signature is valid and the attacked property alone
// decides.

func mustECDSA(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

const (
	testAKAttributes = AttributeFixedTPM | AttributeFixedParent | AttributeSensitiveDataOrigin |
		AttributeUserWithAuth | AttributeRestricted | AttributeSign
	testResidentAttributes = AttributeFixedTPM | AttributeFixedParent | AttributeSensitiveDataOrigin |
		AttributeUserWithAuth | AttributeSign
	testSoftwareAttributes = AttributeUserWithAuth | AttributeSign
)

var noScheme = KeyScheme{Alg: tpm2.TPMAlgNull}

// publicArea is the public area of a key, parsed, so with Raw set.
func publicArea(t testing.TB, pub crypto.PublicKey, attributes Attributes, scheme KeyScheme) *Public {
	t.Helper()
	p := &Public{
		NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, Scheme: scheme,
		Symmetric: SymmetricScheme{Alg: tpm2.TPMAlgNull},
	}
	switch k := pub.(type) {
	case *rsa.PublicKey:
		p.Type, p.KeyBits, p.Modulus = tpm2.TPMAlgRSA, uint16(k.Size()*8), k.N.Bytes()
		if k.E != 65537 {
			p.Exponent = uint32(k.E)
		}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		testkit.NoError(t, err)
		half := len(point) / 2
		p.Type, p.KDF = tpm2.TPMAlgECC, noScheme
		p.X, p.Y = point[1:1+half], point[1+half:]
		switch k.Curve {
		case elliptic.P256():
			p.Curve = tpm2.TPMECCNistP256
		case elliptic.P384():
			p.Curve = tpm2.TPMECCNistP384
		case elliptic.P521():
			p.Curve = tpm2.TPMECCNistP521
		}
	}
	return reparsed(t, p)
}

// reparsed brings Raw up to date with the fields.
func reparsed(t testing.TB, p *Public) *Public {
	t.Helper()
	raw, err := p.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	again, err := ParsePublic(raw)
	if err != nil {
		t.Fatalf("ParsePublic: %v", err)
	}
	return again
}

// changed is a reparsed copy of p with one change.
func changed(t testing.TB, p *Public, change func(*Public)) *Public {
	t.Helper()
	again := *p
	change(&again)
	return reparsed(t, &again)
}

// forger is an attestation key in software.
type forger struct {
	private crypto.Signer
	public  *Public
}

var (
	schemeRSASSA  = KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	schemeRSAPSS  = KeyScheme{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA256}
	schemeECDSA   = KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
	schemeECDSA84 = KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA384}
	schemeECDSA12 = KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA512}
)

func newForger(t testing.TB, private crypto.Signer, scheme KeyScheme) *forger {
	t.Helper()
	return &forger{private: private, public: publicArea(t, private.Public(), testAKAttributes, scheme)}
}

// forgers are one attestation key of each kind that is accepted.
func forgers(t testing.TB) map[string]*forger {
	return map[string]*forger{
		"RSASSA":     newForger(t, tpmlab.RSA2048(), schemeRSASSA),
		"RSAPSS":     newForger(t, tpmlab.RSA2048(), schemeRSAPSS),
		"ECDSA P256": newForger(t, tpmlab.P256(), schemeECDSA),
		"ECDSA P384": newForger(t, tpmlab.P384(), schemeECDSA84),
		"ECDSA P521": newForger(t, tpmlab.P521(), schemeECDSA12),
	}
}

// sign signs with any scheme that fits the key and gives the parsed form.
func (f *forger) sign(t testing.TB, scheme KeyScheme, message []byte) *Signature {
	t.Helper()
	h := tpmwire.HashOf(scheme.Hash)
	digest := tpmwire.AppendDigest(nil, h, message)
	v := &Signature{Alg: scheme.Alg, Hash: scheme.Hash}
	var opts crypto.SignerOpts = h
	if scheme.Alg == tpm2.TPMAlgRSAPSS {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: h}
	}
	out, err := f.private.Sign(rand.Reader, digest, opts)
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	if scheme.Alg != tpm2.TPMAlgECDSA {
		v.RSA = out
		return v
	}
	var body cryptobyte.String
	s := cryptobyte.String(out)
	if !s.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1Integer(&v.R) || !body.ReadASN1Integer(&v.S) {
		t.Fatal("no DER signature")
	}
	return v
}

// unsigned is a statement before it is marshalled and signed.
type unsigned struct {
	ak        *forger
	attest    *Attestation
	scheme    KeyScheme                      // signed with
	patch     func(attest []byte) []byte     // before signing
	signature func(tpmtSignature *Signature) // after signing
}

// marshal signs the statement.
func (f *unsigned) marshal(t testing.TB) (attest, signature []byte) {
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
	if signature, err = v.Marshal(); err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	return attest, signature
}

// forgery is a certify statement. A test changes one thing of a good one.
type forgery struct {
	unsigned
	public  *Public                // certified
	after   func(*CertifyEvidence) // last
	options CertifyOptions
}

var testQualifyingData = []byte{0x00, 0xff, 0x55, 0xaa}

// goodForgery is a statement that is accepted: a TPM-resident key, certified by a
// primary key of the endorsement hierarchy.
func goodForgery(t testing.TB, ak *forger, key crypto.PublicKey) *forgery {
	t.Helper()
	public := publicArea(t, key, testResidentAttributes, noScheme)
	f := &forgery{public: public, unsigned: unsigned{ak: ak, scheme: ak.public.Scheme, attest: &Attestation{
		Type:            tpm2.TPMSTAttestCertify,
		QualifiedSigner: QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.public.Name()),
		ExtraData:       testQualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
	}}}
	f.certify(public)
	f.options = CertifyOptions{AK: AKFromCredential(ak.public.Raw), QualifyingData: testQualifyingData, Key: key}
	return f
}

// certify makes the statement name a resident public area.
func (f *forgery) certify(public *Public) {
	f.public = public
	parent := QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.ak.public.Name()) // any parent will do
	f.attest.Certified = &CertifyInfo{Name: public.Name(), QualifiedName: QualifiedName(parent, public.Name())}
}

// certifyExternal makes the statement name a public area that was loaded from
// outside.
func (f *forgery) certifyExternal(public *Public) {
	f.public = public
	f.attest.Certified = &CertifyInfo{Name: public.Name(), QualifiedName: public.Name()}
}

// useAK changes the attestation key's public area, and who signed with it.
func (f *forgery) useAK(public *Public) {
	f.ak = &forger{private: f.ak.private, public: public}
	f.attest.QualifiedSigner = QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, public.Name())
	f.options.AK = AKFromCredential(public.Raw)
}

func (f *forgery) evidence(t testing.TB) *CertifyEvidence {
	t.Helper()
	e := &CertifyEvidence{Public: f.public.Raw}
	e.Attest, e.Signature = f.marshal(t)
	if f.after != nil {
		f.after(e)
	}
	return e
}

// verify runs VerifyCertify on it and holds the error against want, "" for none.
func (f *forgery) verify(t *testing.T, want refusal.Check) *Certified {
	t.Helper()
	got, err := VerifyCertify(f.evidence(t), f.options)
	tpmlab.ExpectCheck(t, err, want)
	return got
}
