// Package forger makes statements with attestation keys in software. They sign whatever a test
// asks for, so that every signature is valid and the attacked property alone decides. It is
// only for tests. Package statement, which it imports, has a copy of its own.
package forger

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

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// The attributes of an attestation key, and of a key that lives in a TPM.
const (
	AKAttributes = statement.AttributeFixedTPM | statement.AttributeFixedParent | statement.AttributeSensitiveDataOrigin |
		statement.AttributeUserWithAuth | statement.AttributeRestricted | statement.AttributeSign
	ResidentAttributes = statement.AttributeFixedTPM | statement.AttributeFixedParent | statement.AttributeSensitiveDataOrigin |
		statement.AttributeUserWithAuth | statement.AttributeSign
)

// NoScheme is that of a key for any.
var NoScheme = statement.KeyScheme{Alg: tpm2.TPMAlgNull}

// PublicArea is the public area of a key, parsed, so with Raw set.
func PublicArea(t testing.TB, pub crypto.PublicKey, attributes statement.Attributes, scheme statement.KeyScheme) *statement.Public {
	t.Helper()
	p := &statement.Public{
		NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, Scheme: scheme,
		Symmetric: statement.SymmetricScheme{Alg: tpm2.TPMAlgNull},
	}
	switch k := pub.(type) {
	case *rsa.PublicKey:
		p.Type, p.KeyBits, p.Modulus = tpm2.TPMAlgRSA, uint16(k.Size()*8), k.N.Bytes()
		if k.E != 65537 {
			p.Exponent = uint32(k.E)
		}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := len(point) / 2
		p.Type, p.KDF = tpm2.TPMAlgECC, NoScheme
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
	return Reparsed(t, p)
}

// Reparsed brings Raw up to date with the fields.
func Reparsed(t testing.TB, p *statement.Public) *statement.Public {
	t.Helper()
	raw, err := p.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	again, err := statement.ParsePublic(raw)
	if err != nil {
		t.Fatalf("ParsePublic: %v", err)
	}
	return again
}

// Changed is a reparsed copy of p with one change.
func Changed(t testing.TB, p *statement.Public, change func(*statement.Public)) *statement.Public {
	t.Helper()
	again := *p
	change(&again)
	return Reparsed(t, &again)
}

// AK is an attestation key in software.
type AK struct {
	Private crypto.Signer
	Public  *statement.Public
}

// Sign signs with any scheme that fits the key and gives the parsed form.
func (f *AK) Sign(t testing.TB, scheme statement.KeyScheme, message []byte) *statement.Signature {
	t.Helper()
	h := tpmwire.HashOf(scheme.Hash)
	digest := tpmwire.AppendDigest(nil, h, message)
	v := &statement.Signature{Alg: scheme.Alg, Hash: scheme.Hash}
	var opts crypto.SignerOpts = h
	if scheme.Alg == tpm2.TPMAlgRSAPSS {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: h}
	}
	out, err := f.Private.Sign(rand.Reader, digest, opts)
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

// The schemes of attestation keys.
var (
	RSASSA = statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	ECDSA  = statement.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
)

// NewAK is an attestation key with this private part.
func NewAK(t testing.TB, private crypto.Signer, scheme statement.KeyScheme) *AK {
	t.Helper()
	return &AK{Private: private, Public: PublicArea(t, private.Public(), AKAttributes, scheme)}
}

// Certify is a certify statement before it is marshalled and signed. A test changes
// one thing of a good one.
type Certify struct {
	AK        *AK
	Attest    *statement.Attestation
	Public    *statement.Public                        // certified
	Scheme    statement.KeyScheme                      // signed with
	Patch     func(attest []byte) []byte               // before signing
	Signature func(tpmtSignature *statement.Signature) // after signing
	After     func(*statement.CertifyEvidence)         // last
	Options   statement.CertifyOptions
}

// Resident makes the statement name a resident public area.
func (f *Certify) Resident(public *statement.Public) {
	f.Public = public
	parent := statement.QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.AK.Public.Name()) // any parent will do
	f.Attest.Certified = &statement.CertifyInfo{Name: public.Name(), QualifiedName: statement.QualifiedName(parent, public.Name())}
}

// External makes the statement name a public area that was loaded from
// outside.
func (f *Certify) External(public *statement.Public) {
	f.Public = public
	f.Attest.Certified = &statement.CertifyInfo{Name: public.Name(), QualifiedName: public.Name()}
}

// Evidence signs the statement.
func (f *Certify) Evidence(t testing.TB) *statement.CertifyEvidence {
	t.Helper()
	attest, err := f.Attest.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	if f.Patch != nil {
		attest = f.Patch(attest)
	}
	v := f.AK.Sign(t, f.Scheme, attest)
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

// QualifyingData is that of the statements here.
var QualifyingData = []byte{0x00, 0xff, 0x55, 0xaa}

// NewCertify is a statement that is accepted: a TPM-resident key, certified by a
// primary key of the endorsement hierarchy.
func NewCertify(t testing.TB, ak *AK, key crypto.PublicKey) *Certify {
	t.Helper()
	public := PublicArea(t, key, ResidentAttributes, NoScheme)
	f := &Certify{AK: ak, Public: public, Scheme: ak.Public.Scheme, Attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestCertify,
		QualifiedSigner: statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.Public.Name()),
		ExtraData:       QualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
	}}
	f.Resident(public)
	f.Options = statement.CertifyOptions{AK: statement.AKFromCredential(ak.Public.Raw), QualifyingData: QualifyingData, Key: key}
	return f
}
