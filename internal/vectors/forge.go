package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha1" // for statements that are refused because of it
	"errors"
	"math/big"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The attributes of attestation keys, of keys made in a TPM, and of software keys
// that were loaded to be certified.
const (
	akAttributes = tpm.AttributeFixedTPM | tpm.AttributeFixedParent | tpm.AttributeSensitiveDataOrigin |
		tpm.AttributeUserWithAuth | tpm.AttributeRestricted | tpm.AttributeSign
	residentAttributes = tpm.AttributeFixedTPM | tpm.AttributeFixedParent | tpm.AttributeSensitiveDataOrigin |
		tpm.AttributeUserWithAuth | tpm.AttributeSign
	softwareAttributes = tpm.AttributeUserWithAuth | tpm.AttributeSign
)

var (
	noScheme       = tpm.KeyScheme{Alg: tpm2.TPMAlgNull}
	schemeRSASSA   = tpm.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	schemeRSAPSS   = tpm.KeyScheme{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA256}
	schemeECDSA256 = tpm.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
	schemeECDSA384 = tpm.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA384}
	schemeECDSA512 = tpm.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA512}
)

var hashes = map[tpm2.TPMAlgID]crypto.Hash{tpm2.TPMAlgSHA1: crypto.SHA1, tpm2.TPMAlgSHA256: crypto.SHA256,
	tpm2.TPMAlgSHA384: crypto.SHA384, tpm2.TPMAlgSHA512: crypto.SHA512}

// softAK is an attestation key in software, which signs what no TPM would.
type softAK struct {
	private crypto.Signer
	public  *tpm.Public
	chain   [][]byte
}

func (w *world) newSoftAK(private crypto.Signer, scheme tpm.KeyScheme, machine string) *softAK {
	leaf := must(w.tpm.CertifyAK(private.Public(), &tpmsim.AKCertificateOptions{OtherName: machineName(machine)}))
	return &softAK{
		private: repeatable{private},
		public:  publicArea(private.Public(), akAttributes, scheme),
		chain:   [][]byte{leaf.Raw, w.tpm.CA().AKIntermediate().Raw},
	}
}

// publicArea is the public area of a key, parsed, so with Raw set.
func publicArea(key crypto.PublicKey, attributes tpm.Attributes, scheme tpm.KeyScheme) *tpm.Public {
	p := &tpm.Public{NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, Scheme: scheme,
		Symmetric: tpm.SymmetricScheme{Alg: tpm2.TPMAlgNull}}
	switch k := key.(type) {
	case *rsa.PublicKey:
		p.Type, p.KeyBits, p.Modulus = tpm2.TPMAlgRSA, uint16(k.Size()*8), k.N.Bytes()
		if k.E != 65537 {
			p.Exponent = uint32(k.E)
		}
	case *ecdsa.PublicKey:
		point := must(k.Bytes())
		half := len(point) / 2
		p.Type, p.KDF, p.X, p.Y = tpm2.TPMAlgECC, noScheme, point[1:1+half], point[1+half:]
		p.Curve = map[elliptic.Curve]tpm2.TPMECCCurve{elliptic.P256(): tpm2.TPMECCNistP256,
			elliptic.P384(): tpm2.TPMECCNistP384, elliptic.P521(): tpm2.TPMECCNistP521}[k.Curve]
	}
	return reparsed(p)
}

func reparsed(p *tpm.Public) *tpm.Public { return must(tpm.ParsePublic(must(p.Marshal()))) }

// changed is a copy of p with one change.
func changed(p *tpm.Public, how func(*tpm.Public)) *tpm.Public {
	again := *p
	how(&again)
	return reparsed(&again)
}

// sign signs with any scheme that fits the key.
func (k *softAK) sign(scheme tpm.KeyScheme, message []byte) *tpm.Signature {
	hash := hashes[scheme.Hash]
	h := hash.New()
	h.Write(message)
	var opts crypto.SignerOpts = hash
	if scheme.Alg == tpm2.TPMAlgRSAPSS {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	out := must(k.private.Sign(nil, h.Sum(nil), opts))
	v := &tpm.Signature{Alg: scheme.Alg, Hash: scheme.Hash}
	if scheme.Alg != tpm2.TPMAlgECDSA {
		v.RSA = out
		return v
	}
	v.R, v.S = readECDSA(out)
	return v
}

func readECDSA(der []byte) (r, s []byte) {
	var body cryptobyte.String
	in := cryptobyte.String(der)
	var x, y big.Int
	if !in.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1Integer(&x) || !body.ReadASN1Integer(&y) {
		panic(failure{errors.New("no ECDSA signature in DER")})
	}
	return x.Bytes(), y.Bytes()
}

// forgery is an answer before its statement is marshalled and signed. A good one is
// accepted; a vector changes one thing of it.
type forgery struct {
	join
	ak        *softAK
	b         *attest.Binding
	attest    *tpm.Attestation
	public    *tpm.Public
	scheme    tpm.KeyScheme
	patch     func(attest []byte) []byte
	signature func(*tpm.Signature)
	after     func(*tpm.CertifyEvidence)

	akPublic []byte // that the node sends, and that the statement is held against
	options  []string
	resident bool // the environment asks for keys in the TPM
}

// forge makes a good forgery: ak says that the request's key lives in its TPM.
func (w *world) forge(ak *softAK, j join) *forgery {
	f := &forgery{join: w.defaults(j), ak: ak, scheme: ak.public.Scheme, akPublic: ak.public.Raw}
	f.b = f.binding(w, ak.private.Public())
	_, qd := f.secrets(f.b)
	f.attest = &tpm.Attestation{
		Type:            tpm2.TPMSTAttestCertify,
		QualifiedSigner: tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.public.Name()),
		ExtraData:       qd, Clock: 600000, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
	}
	f.certify(publicArea(f.key.Public(), residentAttributes, noScheme))
	return f
}

// certify makes the statement name a key under some parent.
func (f *forgery) certify(public *tpm.Public) {
	f.public = public
	parent := tpm.QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.ak.public.Name()) // any will do
	f.tpm.Certified = &tpm.CertifyInfo{Name: public.Name(), QualifiedName: tpm.QualifiedName(parent, public.Name())}
}

// certifyExternal makes it name a key that was loaded from outside.
func (f *forgery) certifyExternal(public *tpm.Public) {
	f.public = public
	f.tpm.Certified = &tpm.CertifyInfo{Name: public.Name(), QualifiedName: public.Name()}
}

// useAK changes the AK's public area, of the same key.
func (f *forgery) useAK(public *tpm.Public) {
	f.akPublic = public.Raw
	f.attest.QualifiedSigner = tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, public.Name())
}

// rescheme is useAK with another scheme, which the statement is signed with too.
func (f *forgery) rescheme(scheme tpm.KeyScheme) {
	f.useAK(changed(f.ak.public, func(p *tpm.Public) { p.Scheme = scheme }))
	f.scheme = scheme
}

func (f *forgery) evidence() *tpm.CertifyEvidence {
	raw := change(must(f.attest.Marshal()), f.patch)
	v := f.ak.sign(f.scheme, raw)
	if f.signature != nil {
		f.signature(v)
	}
	e := &tpm.CertifyEvidence{Attest: raw, Signature: must(v.Marshal()), Public: f.public.Raw}
	if f.after != nil {
		f.after(e)
	}
	return e
}

// answer is the whole request object.
func (f *forgery) answer(w *world) *csr.Request {
	return w.answerOf(f.join, f.b, f.evidence(), f.akPublic, f.ak.chain)
}
