package tpm

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

const tagDirectoryName asn1.Tag = 0xa4

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

// verifyOwn checks a signature that the TPM made.
func verifyOwn(key crypto.PublicKey, digest, signature []byte, opts crypto.SignerOpts) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if !ecdsa.VerifyASN1(key, digest, signature) {
			return errors.New("ECDSA verification failed")
		}
		return nil
	case *rsa.PublicKey:
		if _, ok := opts.(*rsa.PSSOptions); ok {
			return rsa.VerifyPSS(key, opts.HashFunc(), digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		}
		return rsa.VerifyPKCS1v15(key, opts.HashFunc(), digest, signature)
	}
	return fmt.Errorf("key is a %T", key)
}

type noTPM struct{}

func (noTPM) Send([]byte) ([]byte, error) { return nil, errors.New("no such device") }

// corpus is a file of the collection of real-world data that the environment names.
func corpus(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{corpusDir(t)}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func corpusDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory of recorded TPM statements")
	}
	return dir
}

// softwareKeys are made once: RSA keys take time.
var softwareKeys = struct {
	rsa2048, rsa2048b, rsa1024    func() *rsa.PrivateKey
	p256, p256b, p384, p521, p224 func() *ecdsa.PrivateKey
}{
	rsa2048:  sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) }),
	rsa2048b: sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) }),
	rsa1024:  sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(1024) }),
	p256:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) }),
	p256b:    sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) }),
	p384:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P384()) }),
	p521:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P521()) }),
	p224:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P224()) }),
}

func mustRSA(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func mustECDSA(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

const (
	testAKAttributes = statement.AttributeFixedTPM | statement.AttributeFixedParent | statement.AttributeSensitiveDataOrigin |
		statement.AttributeUserWithAuth | statement.AttributeRestricted | statement.AttributeSign
	testResidentAttributes = statement.AttributeFixedTPM | statement.AttributeFixedParent | statement.AttributeSensitiveDataOrigin |
		statement.AttributeUserWithAuth | statement.AttributeSign
	testSoftwareAttributes = statement.AttributeUserWithAuth | statement.AttributeSign
)

var noScheme = statement.KeyScheme{Alg: tpm2.TPMAlgNull}

// publicArea is the public area of a key, parsed, so with Raw set.
func publicArea(t testing.TB, pub crypto.PublicKey, attributes statement.Attributes, scheme statement.KeyScheme) *statement.Public {
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
func reparsed(t testing.TB, p *statement.Public) *statement.Public {
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

// changed is a reparsed copy of p with one change.
func changed(t testing.TB, p *statement.Public, change func(*statement.Public)) *statement.Public {
	t.Helper()
	again := *p
	change(&again)
	return reparsed(t, &again)
}

// forger is an attestation key in software.
type forger struct {
	private crypto.Signer
	public  *statement.Public
}

var (
	schemeRSASSA = statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	schemeECDSA  = statement.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
)

func newForger(t testing.TB, private crypto.Signer, scheme statement.KeyScheme) *forger {
	t.Helper()
	return &forger{private: private, public: publicArea(t, private.Public(), testAKAttributes, scheme)}
}

// sign signs with any scheme that fits the key and gives the parsed form.
func (f *forger) sign(t testing.TB, scheme statement.KeyScheme, message []byte) *statement.Signature {
	t.Helper()
	h := tpmwire.HashOf(scheme.Hash)
	digest := tpmwire.AppendDigest(nil, h, message)
	v := &statement.Signature{Alg: scheme.Alg, Hash: scheme.Hash}
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

// forgery is a certify statement before it is marshalled and signed. A test changes
// one thing of a good one.
type forgery struct {
	ak        *forger
	attest    *statement.Attestation
	public    *statement.Public                        // certified
	scheme    statement.KeyScheme                      // signed with
	patch     func(attest []byte) []byte               // before signing
	signature func(tpmtSignature *statement.Signature) // after signing
	after     func(*statement.CertifyEvidence)         // last
	options   statement.CertifyOptions
}

var testQualifyingData = []byte{0x00, 0xff, 0x55, 0xaa}

// goodForgery is a statement that is accepted: a TPM-resident key, certified by a
// primary key of the endorsement hierarchy.
func goodForgery(t testing.TB, ak *forger, key crypto.PublicKey) *forgery {
	t.Helper()
	public := publicArea(t, key, testResidentAttributes, noScheme)
	f := &forgery{ak: ak, public: public, scheme: ak.public.Scheme, attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestCertify,
		QualifiedSigner: statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.public.Name()),
		ExtraData:       testQualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
	}}
	f.certify(public)
	f.options = statement.CertifyOptions{AK: statement.AKFromCredential(ak.public.Raw), QualifyingData: testQualifyingData, Key: key}
	return f
}

// certify makes the statement name a resident public area.
func (f *forgery) certify(public *statement.Public) {
	f.public = public
	parent := statement.QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.ak.public.Name()) // any parent will do
	f.attest.Certified = &statement.CertifyInfo{Name: public.Name(), QualifiedName: statement.QualifiedName(parent, public.Name())}
}

// certifyExternal makes the statement name a public area that was loaded from
// outside.
func (f *forgery) certifyExternal(public *statement.Public) {
	f.public = public
	f.attest.Certified = &statement.CertifyInfo{Name: public.Name(), QualifiedName: public.Name()}
}

func (f *forgery) evidence(t testing.TB) *statement.CertifyEvidence {
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
	e := &statement.CertifyEvidence{Attest: attest, Signature: sig, Public: f.public.Raw}
	if f.after != nil {
		f.after(e)
	}
	return e
}

// expectCheck fails unless err is nil for "", or an *Error of that very check.
func expectCheck(t *testing.T, err error, want refusal.Check) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		return
	}
	var e *refusal.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Check != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if e.Got == "" && e.Want == "" && e.Err == nil {
		t.Errorf("%v does not say why", err)
	}
}

func seq(elements ...[]byte) []byte { return element(asn1.SEQUENCE, bytes.Join(elements, nil)) }

func octets(v []byte) []byte { return element(asn1.OCTET_STRING, v) }

func element(tag asn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic()
}

var pcr23 = []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0x80}}}

// throughFile is what brings a key back in another process.
func throughFile(t testing.TB, k *tpmkey.Key) *tpmkey.File {
	t.Helper()
	b, err := k.File().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	file, err := tpmkey.ParseFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func extendSHA256PCR(t testing.TB, tpm transport.TPM, pcr tpm2.TPMHandle) {
	t.Helper()
	sum := sha256.Sum256(nil)
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: pcr, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: sum[:]}}},
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
}

func labParsed(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
