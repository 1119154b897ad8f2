package main

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
)

// ekVendor is a vendor of TPMs with an RSA CA, whose certificates can be signed anew
// after a change that crypto/x509 would not make. All of it follows from the seed.
type ekVendor struct {
	*world
	root, intermediate *ekCA
	p256, p384         crypto.PublicKey
	rsa2048, rsa3072   *rsa.PublicKey
}

// ekCA is a CA certificate with its key.
type ekCA struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
}

// Identifiers of the extensions that are written here.
var (
	idSAN        = asn1.ObjectIdentifier{2, 5, 29, 17}
	idAttributes = asn1.ObjectIdentifier{2, 5, 29, 9}
	idEK         = asn1.ObjectIdentifier{2, 23, 133, 8, 1}
	idAIK        = asn1.ObjectIdentifier{2, 23, 133, 8, 3}
)

func (w *world) newEKVendor() *ekVendor {
	v := &ekVendor{world: w}
	v.root = v.newCA(nil, "EK root", forge.RSAKey(2048, "EK root"), nil)
	v.intermediate = v.newCA(v.root, "EK intermediate", forge.RSAKey(2048, "EK intermediate"), nil)
	v.p256, v.p384 = forge.ECKey(elliptic.P256(), "EK alone P-256", nil).Public(), forge.ECKey(elliptic.P384(), "EK alone P-384", nil).Public()
	v.rsa2048, v.rsa3072 = &forge.RSAKey(2048, "EK alone RSA").PublicKey, &forge.RSAKey(3072, "EK alone RSA-3072").PublicKey
	return v
}

// newCA is a CA; a nil parent makes a root.
func (v *ekVendor) newCA(parent *ekCA, name string, key *rsa.PrivateKey, edit func(*x509.Certificate)) *ekCA {
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(forge.Derive(name+" serial", 8)), Subject: pkix.Name{CommonName: name},
		NotBefore: v.Now.AddDate(-1, 0, 0), NotAfter: v.Now.AddDate(10, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if edit != nil {
		edit(template)
	}
	if parent == nil {
		parent = &ekCA{template, key}
	}
	return &ekCA{issuedBy(parent, template, key.Public()), key}
}

func issuedBy(parent *ekCA, template *x509.Certificate, key crypto.PublicKey) *x509.Certificate {
	der := forge.Must(x509.CreateCertificate(nil, template, parent.cert, key, forge.Repeatable{Signer: parent.key}))
	return forge.Must(x509.ParseCertificate(der))
}

// issue is an EK certificate to the letter of the TCG's profile; edit spoils it.
func (v *ekVendor) issue(by *ekCA, key crypto.PublicKey, edit func(*x509.Certificate)) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(77), NotBefore: v.Now.AddDate(0, -1, 0), NotAfter: v.Now.AddDate(5, 0, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageKeyAgreement, UnknownExtKeyUsage: []asn1.ObjectIdentifier{idEK},
		ExtraExtensions: []pkix.Extension{directory("id:49465800", "SLB9670", "id:00070055"), specification("2.0")},
	}
	if _, ok := key.(*rsa.PublicKey); ok {
		template.KeyUsage = x509.KeyUsageKeyEncipherment
	}
	if edit != nil {
		edit(template)
	}
	return issuedBy(by, template, key)
}

// directory is the critical subjectAltName of an EK certificate; an empty value leaves
// its attribute out.
func directory(manufacturer, model, version string) pkix.Extension {
	var rdns [][]byte
	for _, a := range []struct {
		id    oid.OID
		value string
	}{{oid.TCGAtTPMManufacturer, manufacturer}, {oid.TCGAtTPMModel, model}, {oid.TCGAtTPMVersion, version}} {
		if a.value != "" {
			rdns = append(rdns, forge.TLV(0x31, forge.TLV(0x30, forge.TLV(6, []byte(a.id)), forge.TLV(12, []byte(a.value)))))
		}
	}
	return pkix.Extension{Id: idSAN, Critical: true, Value: forge.TLV(0x30, forge.TLV(0xa4, forge.TLV(0x30, rdns...)))}
}

// specification is the TPM specification attribute of that family.
func specification(family string) pkix.Extension {
	value := forge.TLV(0x30, forge.TLV(12, []byte(family)), forge.TLV(2, []byte{0}), forge.TLV(2, []byte{0, 138}))
	return pkix.Extension{Id: idAttributes, Value: forge.TLV(0x30, forge.TLV(0x30, forge.TLV(6, []byte(oid.TCGAtTPMSpecification)), forge.TLV(0x31, value)))}
}

// Algorithm identifiers: RSA signatures, and the two of an RSA key.
var (
	withSHA256 = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00")
	withSHA1   = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00")
	plainRSA   = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00")
	rsaOAEP    = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x07\x30\x00")
)

// signedAnew signs a certificate or list again, over SHA-1 if asked, after a change of
// what is signed that keeps all lengths.
func signedAnew(der []byte, by *rsa.PrivateKey, overSHA1 bool, change func(tbs []byte) []byte) []byte {
	tbs, algorithm, hash := change(bytes.Clone(forge.Elements(der)[0])), withSHA256, crypto.SHA256
	if overSHA1 {
		tbs, algorithm, hash = bytes.ReplaceAll(tbs, withSHA256, withSHA1), withSHA1, crypto.SHA1
	}
	h := hash.New()
	h.Write(tbs)
	signature := forge.Must(rsa.SignPKCS1v15(nil, by, hash, h.Sum(nil)))
	return forge.TLV(0x30, tbs, algorithm, forge.TLV(3, []byte{0}, signature))
}

func unchanged(b []byte) []byte { return b }

// overSHA1 is the certificate, signed over SHA-1.
func (ca *ekCA) overSHA1(cert *x509.Certificate) []byte {
	return signedAnew(cert.Raw, ca.key, true, unchanged)
}

// withOAEP is the certificate, its key encoded as id-RSAES-OAEP.
func (ca *ekCA) withOAEP(cert *x509.Certificate) []byte {
	return signedAnew(cert.Raw, ca.key, false, func(tbs []byte) []byte { return bytes.ReplaceAll(tbs, plainRSA, rsaOAEP) })
}

// crl is a list of the CA, current for a day before and after its clock.
func (v *ekVendor) crl(by *ekCA, edit func(*x509.RevocationList)) []byte {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: v.Now.Add(-24 * time.Hour), NextUpdate: v.Now.Add(24 * time.Hour)}
	if edit != nil {
		edit(list)
	}
	return forge.Must(x509.CreateRevocationList(nil, list, by.cert, forge.Repeatable{Signer: by.key}))
}

// environment trusts the vendor's root, under the TCG's profile with tolerances.
func (v *ekVendor) environment(tolerances ...string) *vector.Environment {
	e := &vector.Environment{EKIssuers: []vector.EKIssuer{{Roots: [][]byte{v.root.cert.Raw}}}}
	if len(tolerances) > 0 {
		e.EKIssuers[0].Profile = &vector.EKProfile{Name: "with tolerances", Tolerances: tolerances}
	}
	return e
}

// chain is what a node sends: the leaf and the intermediate.
func (v *ekVendor) chain(leaf []byte) *vector.EK {
	return &vector.EK{Certificates: [][]byte{leaf, v.intermediate.cert.Raw}}
}

func (v *ekVendor) refuse(name, what, expect string, ek *vector.EK, e *vector.Environment) {
	v.world.refuse("ek-alone-"+name, what, expect, ek, e).Retry = expect == "certificate-revocation-unknown"
}

func (v *ekVendor) accept(name, what string, ek *vector.EK, e *vector.Environment, result *vector.Result) {
	v.world.accept("ek-alone-"+name, what, ek, e, result)
}

// identityOf is the machine identity of an EK.
func identityOf(key crypto.PublicKey) string { return (&forge.SoftEK{Public: key}).Identity() }

// trusted is the result of a certificate that needed these tolerances.
func trusted(key crypto.PublicKey, tolerances ...string) *vector.Result {
	r := &vector.Result{Machine: identityOf(key), Source: "certificate", Profile: "TCG EK", Tolerances: append([]string{}, tolerances...)}
	if len(tolerances) > 0 {
		r.Profile = "with tolerances"
	}
	return r
}
