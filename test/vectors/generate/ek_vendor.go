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
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// ekVendor is a vendor of TPMs with an RSA CA, whose certificates can be signed again after a
// change that crypto/x509 would not make. All of it is derived from the seed.
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
	v.root = v.newCA(nil, "EK root", rsaKey(2048, "EK root"), nil)
	v.intermediate = v.newCA(v.root, "EK intermediate", rsaKey(2048, "EK intermediate"), nil)
	v.p256, v.p384 = forge.ECKey(elliptic.P256(), "EK alone P-256", nil).Public(), forge.ECKey(elliptic.P384(), "EK alone P-384", nil).Public()
	v.rsa2048, v.rsa3072 = &rsaKey(2048, "EK alone RSA").PublicKey, &rsaKey(3072, "EK alone RSA-3072").PublicKey
	return v
}

// newCA makes a CA; a nil parent makes a root.
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

// issue makes an EK certificate that follows the TCG's profile to the letter; edit spoils it.
func (v *ekVendor) issue(by *ekCA, key crypto.PublicKey, edit func(*x509.Certificate)) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(77), NotBefore: v.Now.AddDate(0, -1, 0), NotAfter: v.Now.AddDate(5, 0, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageKeyAgreement, UnknownExtKeyUsage: []asn1.ObjectIdentifier{idEK},
		ExtraExtensions: []pkix.Extension{directory(12, "id:49465800", "SLB9670", "id:00070055"), specification("2.0")},
	}
	if _, ok := key.(*rsa.PublicKey); ok {
		template.KeyUsage = x509.KeyUsageKeyEncipherment
	}
	if edit != nil {
		edit(template)
	}
	return issuedBy(by, template, key)
}

// directory is the critical subjectAltName of an EK certificate, with its manufacturer under
// the given tag; an empty version is omitted.
func directory(tag byte, manufacturer, model, version string) pkix.Extension {
	rdns := [][]byte{rdn(oid.TCGAtTPMManufacturer, tag, manufacturer), rdn(oid.TCGAtTPMModel, 12, model)}
	if version != "" {
		rdns = append(rdns, rdn(oid.TCGAtTPMVersion, 12, version))
	}
	return pkix.Extension{Id: idSAN, Critical: true, Value: forge.TLV(0x30, forge.TLV(0xa4, forge.TLV(0x30, rdns...)))}
}

func rdn(id oid.OID, tag byte, value string) []byte {
	return forge.TLV(0x31, forge.TLV(0x30, forge.TLV(6, []byte(id)), forge.TLV(tag, []byte(value))))
}

// specification is the TPM specification attribute of that family.
func specification(family string) pkix.Extension {
	value := forge.TLV(0x30, forge.TLV(12, []byte(family)), forge.TLV(2, []byte{0}), forge.TLV(2, []byte{0, 138}))
	return pkix.Extension{Id: idAttributes, Value: forge.TLV(0x30, forge.TLV(0x30, forge.TLV(6, []byte(oid.TCGAtTPMSpecification)), forge.TLV(0x31, value)))}
}

// Algorithm identifiers: RSA signatures, and the two for an RSA key.
var (
	withSHA256 = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00")
	withSHA1   = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00")
	plainRSA   = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00")
	rsaOAEP    = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x07\x30\x00")
)

// signedAnew signs a certificate or list again, over SHA-1 if asked, after a change to the bytes that are
// signed that keeps all lengths.
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

// damaged changes the last bit, which is in a signature.
func damaged(der []byte) []byte {
	der = slices.Clone(der)
	der[len(der)-1] ^= 1
	return der
}

// overSHA1 is the certificate, signed over SHA-1.
func (ca *ekCA) overSHA1(cert *x509.Certificate) []byte {
	return signedAnew(cert.Raw, ca.key, true, unchanged)
}

// withOAEP is the certificate, with its key encoded as id-RSAES-OAEP.
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

// chain is a node's chain: the leaf and the intermediate.
func (v *ekVendor) chain(leaf []byte) *vector.EK {
	return &vector.EK{Certificates: [][]byte{leaf, v.intermediate.cert.Raw}}
}

func (v *ekVendor) refuse(name string, ek *vector.EK, e *vector.Environment) {
	what, expect := v.single("ek-alone-" + name)
	v.refuseAs(name, what, expect, ek, e)
}

func (v *ekVendor) refuseAs(name, what, expect string, ek *vector.EK, e *vector.Environment) {
	v.world.refuseAs("ek-alone-"+name, what, expect, ek, e).Retry = expect == "certificate-revocation-unknown"
}

func (v *ekVendor) accept(name string, ek *vector.EK, e *vector.Environment, result *vector.Result) {
	v.world.accept("ek-alone-"+name, ek, e, result)
}

func (v *ekVendor) acceptAs(name, what string, ek *vector.EK, e *vector.Environment, result *vector.Result) {
	v.world.acceptAs("ek-alone-"+name, what, ek, e, result)
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

// withdrawals are EKs that lists or deny-lists withdrew, and attempts to get past them: other
// spellings of a name, lists that cannot be used, another issuer, an EK without its
// certificate.
func (w *world) withdrawals() {
	v := w.newEKVendor()
	v.spellings()
	v.uselessLists()
	v.aroundLists()
	v.vendorSpellings()
}

// revoking is a list of the CA that revokes one serial number.
func (v *ekVendor) revoking(by *ekCA, serial int64, edits ...func(*x509.RevocationList)) []byte {
	return v.crl(by, func(l *x509.RevocationList) {
		l.RevokedCertificateEntries = []x509.RevocationListEntry{{SerialNumber: big.NewInt(serial), RevocationTime: v.Now.Add(-time.Hour), ReasonCode: 1}}
		for _, edit := range edits {
			edit(l)
		}
	})
}

func (v *ekVendor) withCRLs(lists ...[]byte) *vector.Environment {
	e := v.environment()
	e.EKIssuers[0].CRLs = lists
	return e
}

// requiring is withCRLs, where each CA needs a list.
func (v *ekVendor) requiring(lists ...[]byte) *vector.Environment {
	e := v.withCRLs(lists...)
	e.EKIssuers[0].RequireCRL = true
	return e
}

// denying denies the TPMs of a vendor and model, "" for any, in a range of versions.
func (v *ekVendor) denying(vendor, model string, first, last uint32) *vector.Environment {
	e := v.environment()
	e.DeniedTPMs = []vector.DeniedTPM{{Vendor: vendor, Model: model, First: first, Last: last, Reason: "a flaw"}}
	return e
}

// listing also puts the EK on P-256 on the allow-list.
func (v *ekVendor) listing(e *vector.Environment) *vector.Environment {
	e.AllowedEKs = []string{identityOf(v.p256)}
	return e
}

// spelt is the CA with another spelling of its name.
func (ca *ekCA) spelt(tag byte, name string) *ekCA {
	out := *ca.cert
	out.RawSubject = forge.TLV(0x30, rdn(oid.CommonName, tag, name))
	return &ekCA{&out, ca.key}
}

func (v *ekVendor) spellings() {
	ek := v.chain(v.issue(v.intermediate, v.p256, nil).Raw)
	for _, s := range []struct {
		name, what string
		tag        byte
		text       string
	}{
		{"utf8", "a UTF8String", 12, "EK intermediate"},
		{"t61", "a T61String", 20, "EK intermediate"},
		{"bmp", "a BMPString", 30, "\x00E\x00K\x00 \x00i\x00n\x00t\x00e\x00r\x00m\x00e\x00d\x00i\x00a\x00t\x00e"},
		{"another-case", "letters of another case", 19, "ek INTERMEDIATE"},
		{"other-white-space", "other white space", 19, " EK   intermediate "},
	} {
		ca := v.intermediate.spelt(s.tag, s.text)
		v.refuseAs("revoked-by-a-list-in-"+s.name, "The list that revokes the certificate spells the CA's name with "+s.what+".", "certificate-revoked",
			ek, v.withCRLs(v.revoking(ca, 77)))
		e := v.requiring(v.revoking(ca, 78), v.crl(v.root, nil))
		v.acceptAs("on-no-list-in-"+s.name, "The list spells the CA's name with "+s.what+", and has another certificate.", ek, e, trusted(v.p256))
	}
}

func (v *ekVendor) uselessLists() {
	ek := v.chain(v.issue(v.intermediate, v.p256, nil).Raw)
	list := v.revoking(v.intermediate, 78)
	v.refuse("with-a-damaged-list-undemanded", ek, v.withCRLs(damaged(list)))
	v.refuse("with-a-sha1-list-undemanded", ek, v.withCRLs(signedAnew(list, v.intermediate.key, true, unchanged)))
	v.refuse("with-a-list-of-another-key", ek, v.withCRLs(v.revoking(&ekCA{v.intermediate.cert, v.root.key}, 78)))
	noSigner := v.newCA(v.root, "EK intermediate without cRLSign", v.intermediate.key, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign })
	may := *noSigner.cert
	may.KeyUsage |= x509.KeyUsageCRLSign
	v.refuse("with-a-list-of-no-signer", &vector.EK{Certificates: [][]byte{v.issue(noSigner, v.p256, nil).Raw, noSigner.cert.Raw}}, v.withCRLs(v.revoking(&ekCA{&may, noSigner.key}, 78)))
	v.refuse("with-a-list-under-another-name", ek, v.withCRLs(v.revoking(v.intermediate.spelt(19, "EK intermediate 2"), 78)))
}

func (v *ekVendor) aroundLists() {
	ek, bare := v.chain(v.issue(v.intermediate, v.p256, nil).Raw), &vector.EK{PublicKey: forge.SPKI(v.p256)}
	revoked := v.revoking(v.intermediate, 77)
	issuers := v.withCRLs(revoked)
	issuers.EKIssuers = append(issuers.EKIssuers, v.environment("KeyEnciphermentOfECC").EKIssuers...)
	v.refuse("revoked-under-the-first-of-two-issuers", ek, issuers)
	swapped := &vector.Environment{EKIssuers: []vector.EKIssuer{issuers.EKIssuers[1], issuers.EKIssuers[0]}}
	v.refuse("revoked-under-the-second-of-two-issuers", ek, swapped)

	listed := v.listing(v.withCRLs(revoked))
	v.refuse("revoked-on-the-list-without-certificate", bare, listed)
	foreign := v.newCA(nil, "foreign root of a revoked EK", v.root.key, nil)
	v.refuse("revoked-on-the-list-under-another-certificate", &vector.EK{Certificates: [][]byte{v.issue(foreign, v.p256, nil).Raw}}, listed)
	denied := v.listing(v.denying("IFX", "", 0, 0xffffffff))
	v.refuse("denied-on-the-list-without-certificate", bare, denied)
}

func (v *ekVendor) vendorSpellings() {
	deny := func(vendor string) *vector.Environment { return v.denying(vendor, "", 0, 0xffffffff) }
	of := func(tag byte, manufacturer string) *vector.EK {
		return v.chain(v.issue(v.intermediate, v.p256, func(c *x509.Certificate) {
			c.ExtraExtensions[0] = directory(tag, manufacturer, "SLB9670", "id:00070055")
		}).Raw)
	}
	const bmp = "\x00i\x00d\x00:\x004\x009\x004\x006\x005\x008\x000\x000"
	good := of(12, "id:49465800")
	v.refuse("denied-by-identifier", good, deny("id:49465800"))
	v.refuse("denied-in-lower-case", good, deny("ifx"))
	v.refuse("denied-filled-with-spaces", of(12, "id:53544D20"), deny("id:53544d00"))
	v.refuse("denied-with-a-bmp-manufacturer", of(30, bmp), deny("IFX"))
	v.accept("with-a-bmp-manufacturer", of(30, bmp), deny("STM"), trusted(v.p256))
	v.refuse("with-a-manufacturer-without-id", of(12, "STM "), deny("IFX"))
	v.refuse("with-a-manufacturer-of-no-string", of(4, "id:49465800"), deny("STM"))
}
