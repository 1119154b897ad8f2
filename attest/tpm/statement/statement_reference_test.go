package statement

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// naive is a slow reading of the same rules: go-tpm parses, numbers are big.Ints, and
// each rule is one line of a list. It knows nothing of how the fast one works.
type naive struct {
	attest *tpm2.TPMSAttest
	sig    *tpm2.TPMTSignature
	public *tpm2.TPMTPublic
	ak     *tpm2.TPMTPublic
}

// naiveVerify reports whether the evidence holds under o, which must set AKPublic and
// no insecure option.
func naiveVerify(t *testing.T, e *CertifyEvidence, o CertifyOptions) bool {
	t.Helper()
	var n naive
	var ok bool
	if n.attest, ok = naiveRead[tpm2.TPMSAttest](e.Attest); !ok {
		return false
	}
	if n.sig, ok = naiveRead[tpm2.TPMTSignature](e.Signature); !ok {
		return false
	}
	if n.public, ok = naiveRead[tpm2.TPMTPublic](e.Public); !ok {
		return false
	}
	if n.ak, ok = naiveRead[tpm2.TPMTPublic](o.AK.public); !ok {
		return false
	}
	certified, err := n.attest.Attested.Certify()
	if err != nil {
		return false
	}
	key, akKey := naiveKey(n.public), naiveKey(n.ak)
	if key == nil || akKey == nil {
		return false
	}
	name, parentless := certified.Name.Buffer, bytes.Equal(certified.Name.Buffer, certified.QualifiedName.Buffer)
	named := false
	if p, err := ParsePublic(e.Public); err == nil {
		for _, one := range naiveNames(t, p) {
			named = named || bytes.Equal(one, name)
		}
	}
	a, b := n.public.ObjectAttributes, n.ak.ObjectAttributes
	for _, rule := range []bool{
		n.attest.Magic == tpm2.TPMGeneratedValue,
		n.attest.Type == tpm2.TPMSTAttestCertify,
		bytes.Equal(n.attest.ExtraData.Buffer, o.QualifyingData),
		named,
		key.Equal(o.Key), !key.Equal(akKey),
		n.public.NameAlg != tpm2.TPMAlgSHA1, n.ak.NameAlg != tpm2.TPMAlgSHA1,
		naiveName(certified.QualifiedName.Buffer, n.public.NameAlg),
		naiveName(n.attest.QualifiedSigner.Buffer, n.ak.NameAlg),
		!bytes.Equal(n.attest.QualifiedSigner.Buffer, naiveOwnName(n.ak)),
		// the certified key
		a.SignEncrypt || o.AllowDecryptionKey && a.Decrypt,
		!a.X509Sign, !a.Restricted || o.AllowRestrictedKey && a.SignEncrypt != a.Decrypt,
		!a.FixedTPM || a.FixedParent && !a.EncryptedDuplication,
		!parentless || !a.FixedTPM && !a.FixedParent && !a.Restricted,
		!o.RequireTPMResident || a.FixedTPM && a.FixedParent && !parentless,
		// the attestation key
		b.FixedTPM, b.FixedParent, b.SensitiveDataOrigin, b.Restricted, b.SignEncrypt, !b.Decrypt, !b.X509Sign, !b.EncryptedDuplication,
		naiveSignature(n.sig, n.ak, akKey, e.Attest),
	} {
		if !rule {
			return false
		}
	}
	return true
}

type naivePublicKey interface{ Equal(crypto.PublicKey) bool }

// naiveRead is go-tpm's decoder with stricter rules: one encoding for one value, no
// reserved bits, sizes that exist.
func naiveRead[T tpm2.Marshallable, P interface {
	*T
	tpm2.Unmarshallable
}](in []byte) (*T, bool) {
	if len(in) > 1024 {
		return nil, false
	}
	v, err := tpm2.Unmarshal[T, P](in)
	if err != nil || !bytes.Equal(tpm2.Marshal(*v), in) {
		return nil, false
	}
	switch v := any(v).(type) {
	case *tpm2.TPMSAttest:
		return any(v).(*T), len(v.QualifiedSigner.Buffer) <= 66 && len(v.ExtraData.Buffer) <= 66
	case *tpm2.TPMTPublic:
		bits := uint32(0)
		for _, octet := range in[4:8] {
			bits = bits<<8 | uint32(octet)
		}
		_, err := v.NameAlg.Hash()
		policy := len(v.AuthPolicy.Buffer)
		return any(v).(*T), bits&0xfff0f009 == 0 && err == nil && (policy == 0 || policy == naiveDigestSize(v.NameAlg)) && naiveScheme(v)
	}
	return v, true
}

// naiveScheme: the scheme has the key's kind, and a hash that exists.
func naiveScheme(v *tpm2.TPMTPublic) bool {
	if v.Type == tpm2.TPMAlgRSA {
		d, err := v.Parameters.RSADetail()
		if err != nil || d.KeyBits == 0 || d.KeyBits > 4096 || d.KeyBits%8 != 0 || d.Symmetric.Algorithm == tpm2.TPMAlgXOR {
			return false
		}
		return naiveSchemeHash(tpm2.Marshal(d.Scheme), "NULL RSAES RSASSA RSAPSS OAEP")
	}
	d, err := v.Parameters.ECCDetail()
	return err == nil && d.Symmetric.Algorithm != tpm2.TPMAlgXOR && naiveSchemeHash(tpm2.Marshal(d.Scheme), "NULL ECDSA ECDAA ECDH ECMQV") &&
		naiveSchemeHash(tpm2.Marshal(d.KDF), "NULL 0x0007 0x0020 0x0021 0x0022")
}

func naiveSchemeHash(scheme []byte, kinds string) bool {
	kind := tpmwire.AlgorithmName(tpm2.TPMAlgID(scheme[0])<<8 | tpm2.TPMAlgID(scheme[1]))
	if !bytes.Contains([]byte(kinds), []byte(kind)) {
		return false
	}
	return len(scheme) < 4 || tpmwire.KnownHash(tpm2.TPMAlgID(scheme[2])<<8|tpm2.TPMAlgID(scheme[3]))
}

func naiveDigestSize(alg tpm2.TPMAlgID) int {
	return map[tpm2.TPMAlgID]int{tpm2.TPMAlgSHA1: 20, tpm2.TPMAlgSHA256: 32, tpm2.TPMAlgSHA384: 48, tpm2.TPMAlgSHA512: 64}[alg]
}

func naiveName(b []byte, alg tpm2.TPMAlgID) bool {
	return len(b) == 2+naiveDigestSize(alg) && b[0] == byte(alg>>8) && b[1] == byte(alg)
}

func naiveOwnName(v *tpm2.TPMTPublic) []byte {
	name, err := tpm2.ObjectName(v)
	if err != nil {
		return nil
	}
	return name.Buffer
}

func naiveKey(v *tpm2.TPMTPublic) naivePublicKey {
	if v.Type == tpm2.TPMAlgRSA {
		d, err := v.Parameters.RSADetail()
		unique, err2 := v.Unique.RSA()
		if err != nil || err2 != nil || d.KeyBits < 2048 || d.KeyBits > 4096 || len(unique.Buffer)*8 != int(d.KeyBits) {
			return nil
		}
		e := d.Exponent
		if e == 0 {
			e = 65537
		}
		n := new(big.Int).SetBytes(unique.Buffer)
		if e < 65537 || e%2 == 0 || e > 1<<31-1 || n.BitLen() <= int(d.KeyBits)-8 {
			return nil
		}
		return &rsa.PublicKey{N: n, E: int(e)}
	}
	d, err := v.Parameters.ECCDetail()
	unique, err2 := v.Unique.ECC()
	if err != nil || err2 != nil {
		return nil
	}
	curve, err := d.CurveID.Curve()
	if err != nil || d.CurveID == tpm2.TPMECCNistP224 {
		return nil
	}
	width := (curve.Params().BitSize + 7) / 8
	if len(unique.X.Buffer) > width || len(unique.Y.Buffer) > width {
		return nil
	}
	x, y := new(big.Int).SetBytes(unique.X.Buffer), new(big.Int).SetBytes(unique.Y.Buffer)
	//nolint:staticcheck // the point of this reading is to be another one
	if x.Cmp(curve.Params().P) >= 0 || y.Cmp(curve.Params().P) >= 0 || !curve.IsOnCurve(x, y) {
		return nil
	}
	//nolint:staticcheck // likewise
	return &ecdsa.PublicKey{Curve: curve, X: x, Y: y}
}

func naiveSignature(sig *tpm2.TPMTSignature, ak *tpm2.TPMTPublic, key naivePublicKey, message []byte) bool {
	digest := func(alg tpm2.TPMAlgID) (crypto.Hash, []byte) {
		h := map[tpm2.TPMAlgID]crypto.Hash{tpm2.TPMAlgSHA256: crypto.SHA256, tpm2.TPMAlgSHA384: crypto.SHA384, tpm2.TPMAlgSHA512: crypto.SHA512}[alg]
		if h == 0 {
			return 0, nil
		}
		w := h.New()
		w.Write(message)
		return h, w.Sum(nil)
	}
	if ak.Type == tpm2.TPMAlgECC {
		k := key.(*ecdsa.PublicKey)
		d, _ := ak.Parameters.ECCDetail()
		own, err := d.Scheme.Details.ECDSA()
		s, err2 := sig.Signature.ECDSA()
		if err != nil || err2 != nil || d.Symmetric.Algorithm != tpm2.TPMAlgNull || s.Hash != own.HashAlg {
			return false
		}
		h, sum := digest(s.Hash)
		width := (k.Params().BitSize + 7) / 8
		return h != 0 && len(s.SignatureR.Buffer) <= width && len(s.SignatureS.Buffer) <= width &&
			ecdsa.Verify(k, sum, new(big.Int).SetBytes(s.SignatureR.Buffer), new(big.Int).SetBytes(s.SignatureS.Buffer))
	}
	d, _ := ak.Parameters.RSADetail()
	if d.Symmetric.Algorithm != tpm2.TPMAlgNull || d.Scheme.Scheme != sig.SigAlg {
		return false
	}
	k := key.(*rsa.PublicKey)
	if own, err := d.Scheme.Details.RSASSA(); err == nil {
		s, err := sig.Signature.RSASSA()
		h, sum := digest(own.HashAlg)
		return err == nil && h != 0 && s.Hash == own.HashAlg && rsa.VerifyPKCS1v15(k, h, sum, s.Sig.Buffer) == nil
	}
	own, err := d.Scheme.Details.RSAPSS()
	s, err2 := sig.Signature.RSAPSS()
	if err != nil || err2 != nil || s.Hash != own.HashAlg {
		return false
	}
	h, sum := digest(own.HashAlg)
	return h != 0 && rsa.VerifyPSS(k, h, sum, s.Sig.Buffer, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
}

// TestReferenceAgrees: the slow reading accepts good statements, so that its refusals mean
// something.
func TestReferenceAgrees(t *testing.T) {
	for name, ak := range forgers(t) {
		f := goodForgery(t, ak, tpmlab.P256b().Public())
		if !naiveVerify(t, f.evidence(t), f.options) {
			t.Errorf("%s: the reference refuses good evidence", name)
		}
	}
}

// FuzzVerifyCertify holds VerifyCertify against the slow reading. The statement is
// signed again after every change, so that the checks after the signature are
// reached; sigChange changes the signature itself.
func FuzzVerifyCertify(f *testing.F) {
	ak := newForger(f, tpmlab.P256(), schemeECDSA)
	key := tpmlab.P256b().Public()
	good := goodForgery(f, ak, key)
	add := func(change func(*forgery)) {
		g := goodForgery(f, ak, key)
		change(g)
		e := g.evidence(f)
		f.Add(e.Attest, e.Public, g.options.AK.public, []byte{}, uint8(0))
		f.Add(e.Attest, e.Public, g.options.AK.public, []byte{}, uint8(7))
	}
	add(func(*forgery) {})
	add(func(g *forgery) { g.certifyExternal(g.public) })
	add(func(g *forgery) { g.certifyExternal(publicArea(f, key, testSoftwareAttributes, noScheme)) })
	add(func(g *forgery) { g.certify(ak.public) })
	add(func(g *forgery) { g.useAK(changed(f, ak.public, func(p *Public) { p.Scheme = noScheme })) })
	add(func(g *forgery) { g.useAK(changed(f, ak.public, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA1 })) })
	add(func(g *forgery) { g.certify(changed(f, g.public, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA384 })) })
	f.Add(good.evidence(f).Attest, good.public.Raw, ak.public.Raw, []byte{0x80, 0, 0, 1}, uint8(0))
	f.Fuzz(func(t *testing.T, attest, public, akPublic, sigChange []byte, options uint8) {
		sig, err := ak.sign(t, schemeECDSA, attest).Marshal()
		testkit.NoError(t, err)
		for i, b := range sigChange {
			sig[(i*13)%len(sig)] ^= b
		}
		e := &CertifyEvidence{Attest: attest, Signature: sig, Public: public}
		o := CertifyOptions{
			AK: AKFromCredential(akPublic), QualifyingData: testQualifyingData, Key: key,
			RequireTPMResident: options&1 != 0, AllowDecryptionKey: options&2 != 0, AllowRestrictedKey: options&4 != 0,
		}
		if len(akPublic) == 0 {
			return
		}
		got, err := VerifyCertify(e, o)
		if (err == nil) != (got != nil) {
			t.Fatalf("result %v and error %v", got, err)
		}
		if want := naiveVerify(t, e, o); (err == nil) != want {
			t.Fatalf("got %v, the slow reading says %v\nattest %x\npublic %x\nak %x\nsignature %x", err, want, attest, public, akPublic, sig)
		}
	})
}
