package main

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// eksAlone are EK certificates by themselves, with forms that an issuer's profile tolerates and forms that
// it does not.
func (w *world) eksAlone() {
	v := w.newEKVendor()
	for _, k := range []struct {
		name string
		key  crypto.PublicKey
	}{{"p256", v.p256}, {"p384", v.p384}, {"rsa2048", v.rsa2048}, {"rsa3072", v.rsa3072}} {
		v.acceptAs(k.name, "An EK certificate to the letter of the TCG's profile.", v.chain(v.issue(v.intermediate, k.key, nil).Raw), v.environment(), trusted(k.key))
	}
	v.tolerances()
	v.leaves()
	v.chains()
	v.keys()
	v.revocations()
	v.lists()
	v.usagesOfCAs()
}

// header is that of a TCG_PCCLIENT_STORED_CERT before a certificate.
func header(der []byte, further ...byte) []byte {
	size := len(der) + len(further)
	return slices.Concat([]byte{0x10, 1, 0, byte(size >> 8), byte(size)}, further, der)
}

// tolerances are harmless faults, each once under a profile that tolerates it and once under
// one that does not.
func (v *ekVendor) tolerances() {
	ecc := v.issue(v.intermediate, v.p256, nil)
	edited := func(key crypto.PublicKey, edit func(*x509.Certificate)) []byte {
		return v.issue(v.intermediate, key, edit).Raw
	}
	oldRoot := &vector.EK{Certificates: [][]byte{ecc.Raw, v.root.overSHA1(v.intermediate.cert)}}
	for _, t := range listed("tolerances", map[string]struct {
		tolerance string
		key       crypto.PublicKey
		ek        *vector.EK
	}{
		"padded-with-zeros":       {"NVPadding", v.p256, v.chain(append(slices.Clone(ecc.Raw), make([]byte, 100)...))},
		"padded-with-ones":        {"NVPadding", v.p256, v.chain(append(slices.Clone(ecc.Raw), slices.Repeat([]byte{0xff}, 100)...))},
		"with-the-tcg-header":     {"TCGHeader", v.p256, v.chain(header(ecc.Raw, 0x10, 2))},
		"with-a-short-tcg-header": {"TCGHeader", v.p256, v.chain(header(ecc.Raw))},
		"rsaes-oaep":              {"RSAESOAEPKey", v.rsa2048, v.chain(v.intermediate.withOAEP(v.issue(v.intermediate, v.rsa2048, nil)))},
		"for-a-tpm-1-2": {"TPM12Specification", v.p256,
			v.chain(edited(v.p256, func(c *x509.Certificate) { c.ExtraExtensions[1] = specification("1.2") }))},
		"without-ext-key-usage": {"NoExtKeyUsage", v.p256, v.chain(edited(v.p256, func(c *x509.Certificate) { c.UnknownExtKeyUsage = nil }))},
		"without-key-usage":     {"NoKeyUsage", v.p256, v.chain(edited(v.p256, func(c *x509.Certificate) { c.KeyUsage = 0 }))},
		"without-directory-name": {"NoDirectoryName", v.p256,
			v.chain(edited(v.p256, func(c *x509.Certificate) {
				c.ExtraExtensions, c.Subject = c.ExtraExtensions[1:], pkix.Name{CommonName: "EK"}
			}))},
		"without-a-version": {"NoDirectoryName", v.p256,
			v.chain(edited(v.p256, func(c *x509.Certificate) { c.ExtraExtensions[0] = directory(12, "id:49465800", "SLB9670", "") }))},
		"without-basic-constraints": {"NoBasicConstraints", v.p256,
			v.chain(edited(v.p256, func(c *x509.Certificate) { c.BasicConstraintsValid = false }))},
		"ecc-for-key-encipherment": {"KeyEnciphermentOfECC", v.p256,
			v.chain(edited(v.p256, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }))},
		"signed-with-sha1":              {"InsecureAllowSHA1Links", v.p256, v.chain(v.intermediate.overSHA1(ecc))},
		"intermediate-signed-with-sha1": {"InsecureAllowSHA1Links", v.p256, oldRoot},
		"expired":                       {"InsecureAllowExpiredEK", v.p256, v.chain(edited(v.p256, func(c *x509.Certificate) { c.NotAfter = v.Now.Add(-time.Second) }))},
	}) {
		f := t.Change
		v.acceptAs(t.Name+"-let-through", t.What+" The issuer's profile lets that through.", f.ek, v.environment(f.tolerance), trusted(f.key, f.tolerance))
		v.refuseAs(t.Name, t.What+" No profile lets that through.", t.Expect, f.ek, v.environment())
	}
	both := v.chain(header(append(slices.Clone(ecc.Raw), 0, 0), 0x10, 2))
	v.accept("with-two-faults-let-through", both, v.environment("NVPadding", "TCGHeader"), trusted(v.p256, "NVPadding", "TCGHeader"))
	v.refuse("with-two-faults-and-one-let-through", both, v.environment("TCGHeader"))
}

// leaves are EK certificates with a fault that no profile tolerates.
func (v *ekVendor) leaves() {
	all := v.environment("NVPadding", "TCGHeader", "RSAESOAEPKey", "TPM12Specification", "NoExtKeyUsage", "NoDirectoryName", "NoBasicConstraints",
		"KeyEnciphermentOfECC", "InsecureAllowSHA1Links", "InsecureAllowExpiredEK")
	good := v.issue(v.intermediate, v.p256, nil).Raw
	for _, a := range listed("EK certificates", map[string]func(*x509.Certificate){
		"not-yet-valid":      func(c *x509.Certificate) { c.NotBefore = v.Now.Add(time.Second) },
		"is-ca":              func(c *x509.Certificate) { c.IsCA = true },
		"of-an-ak":           func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{idAIK} },
		"of-an-ek-and-an-ak": func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{idEK, idAIK} },
		"of-a-web-server": func(c *x509.Certificate) {
			c.UnknownExtKeyUsage, c.ExtKeyUsage = nil, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		},
		"for-signatures":   func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature },
		"for-certificates": func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign },
		"with-an-unknown-critical-extension": func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 999, 2}, Critical: true, Value: []byte{5, 0}})
		},
		"with-a-broken-specification":  func(c *x509.Certificate) { c.ExtraExtensions[1].Value = []byte{0x30, 1} },
		"for-a-tpm-3":                  func(c *x509.Certificate) { c.ExtraExtensions[1] = specification("3.0") },
		"with-a-broken-directory-name": func(c *x509.Certificate) { c.ExtraExtensions[0].Value = []byte{0x30, 2, 0xa4, 0} },
	}) {
		v.refuseAs(a.Name, a.What, a.Expect, v.chain(v.issue(v.intermediate, v.p256, a.Change).Raw), all)
	}
	send := func(name string, leaf []byte) { v.refuse(name, v.chain(leaf), all) }
	send("padded-with-something-else", append(slices.Clone(good), 1, 2, 3))
	send("padded-in-two-ways", append(slices.Clone(good), 0, 0xff))
	send("with-a-header-that-is-too-long", header(good, 0x10, 2)[:len(good)])
	send("truncated", good[:len(good)-1])
	send("too-large", append(slices.Clone(good), make([]byte, 8<<10)...))
	spec := v.environment()
	spec.EKIssuers[0].Profile = &vector.EKProfile{Name: "with a specification", RequireSpecification: true}
	bare := v.chain(v.issue(v.intermediate, v.p256, func(c *x509.Certificate) { c.ExtraExtensions = c.ExtraExtensions[:1] }).Raw)
	v.refuse("without-specification", bare, spec)
	v.accept("without-specification-unasked", bare, v.environment(), trusted(v.p256))
	google := v.environment()
	google.EKIssuers[0].Profile = &vector.EKProfile{Name: "with an extension", Extensions: []string{"2.999.3"}}
	v.refuse("without-an-extension-of-the-profile", v.chain(good), google)
}

// chains do not lead to a root, or not as they must.
func (v *ekVendor) chains() {
	leaf := func(by *ekCA) []byte { return v.issue(by, v.p256, nil).Raw }
	send := func(name string, certificates ...[]byte) {
		v.refuse(name, &vector.EK{Certificates: certificates}, v.environment())
	}
	good := leaf(v.intermediate)
	ca := func(parent *ekCA, name string, edit func(*x509.Certificate)) *ekCA {
		return v.newCA(parent, name, v.intermediate.key, edit)
	}
	foreign := ca(nil, "foreign root", nil)
	below := ca(foreign, "EK intermediate", nil)
	send("of-another-vendor", leaf(below), below.cert.Raw)
	send("intermediate-missing", good)
	send("signature-changed", damaged(good), v.intermediate.cert.Raw)
	old := damaged(v.intermediate.overSHA1(v.issue(v.intermediate, v.p256, nil)))
	v.refuse("sha1-signature-changed", v.chain(old), v.environment("InsecureAllowSHA1Links"))
	for _, c := range listed("CAs of EKs", map[string]func(*x509.Certificate){
		"intermediate-is-no-ca":              func(c *x509.Certificate) { c.IsCA = false },
		"intermediate-signs-no-certificates": func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign },
		"intermediate-expired":               func(c *x509.Certificate) { c.NotAfter = v.Now.Add(-time.Second) },
		"intermediate-not-yet-valid":         func(c *x509.Certificate) { c.NotBefore = v.Now.Add(time.Second) },
	}) {
		above := ca(v.root, "EK intermediate, spoiled", c.Change)
		v.refuseAs(c.Name, c.What, c.Expect, &vector.EK{Certificates: [][]byte{leaf(above), above.cert.Raw}}, v.environment())
	}
	short := ca(v.root, "EK intermediate with path length 0", func(c *x509.Certificate) { c.MaxPathLenZero = true })
	under := v.newCA(short, "EK intermediate below it", v.root.key, nil)
	send("path-length-exceeded", leaf(under), under.cert.Raw, short.cert.Raw)

	env := v.environment()
	env.EKIssuers[0].Intermediates = [][]byte{v.intermediate.cert.Raw}
	v.accept("with-the-intermediate-known", &vector.EK{Certificates: [][]byte{good}}, env, trusted(v.p256))
	two := v.environment()
	two.EKIssuers = append([]vector.EKIssuer{{Roots: [][]byte{foreign.cert.Raw}}}, two.EKIssuers...)
	v.accept("of-the-second-issuer", v.chain(good), two, trusted(v.p256))
}

// keys are keys that are not EKs, and EKs without certificates.
func (v *ekVendor) keys() {
	exponent := &rsa.PublicKey{N: v.rsa2048.N, E: 3}
	for _, k := range listed("EKs", map[string]crypto.PublicKey{
		"with-a-roca-modulus": &rsa.PublicKey{N: forge.ROCAModulus(), E: 65537},
		"with-exponent-3":     exponent,
		"with-1024-bits":      &v.RSA1024.PublicKey,
		"on-p224":             forge.ECKey(elliptic.P224(), "EK alone P-224", nil).Public(),
	}) {
		v.refuseAs(k.Name, k.What, k.Expect, v.chain(v.issue(v.intermediate, k.Change, nil).Raw), v.environment())
		v.refuseAs(k.Name+"-without-certificate", k.What+" It comes without a certificate.", k.Expect, &vector.EK{PublicKey: forge.Must(x509.MarshalPKIXPublicKey(k.Change))},
			&vector.Environment{AllowedEKs: []string{identityOf(v.p256)}})
	}
	bare, rsaBare := forge.SPKI(v.p256), forge.SPKI(v.rsa2048)
	list := &vector.Environment{AllowedEKs: []string{identityOf(v.p256), identityOf(v.rsa2048)}}
	listed := func(key crypto.PublicKey) *vector.Result {
		return &vector.Result{Machine: identityOf(key), Source: "allow-list"}
	}
	v.accept("without-certificate-on-the-list", &vector.EK{PublicKey: bare}, list, listed(v.p256))
	foreign := v.newCA(nil, "foreign root of a listed EK", v.root.key, nil)
	v.accept("of-another-vendor-on-the-list", &vector.EK{Certificates: [][]byte{v.issue(foreign, v.p256, nil).Raw}}, list, listed(v.p256))
	v.accept("rsaes-oaep-on-the-list", &vector.EK{Certificates: [][]byte{v.intermediate.withOAEP(v.issue(v.intermediate, v.rsa2048, nil))}}, list, listed(v.rsa2048))
	v.refuse("without-certificate", &vector.EK{PublicKey: forge.SPKI(v.p384)}, list)
	v.refuse("from-two-sources", &vector.EK{Certificates: v.chain(v.issue(v.intermediate, v.p256, nil).Raw).Certificates, PublicKey: bare}, v.environment())
	v.refuse("absent", &vector.EK{}, v.environment())
	v.refuse("compressed-point", &vector.EK{PublicKey: compressed(bare)}, list)
	v.refuse("rsaes-oaep-without-certificate", &vector.EK{PublicKey: slices.Concat(rsaBare[:4], rsaOAEP, rsaBare[4+len(plainRSA):])}, list)
	v.refuse("trailing-bytes", &vector.EK{PublicKey: append(slices.Clone(bare), 0)}, list)
}

// compressed is the SubjectPublicKeyInfo of a key on P-256 with a compressed point.
func compressed(spki []byte) []byte {
	e := forge.Elements(spki)
	point := forge.Content(e[1])
	return forge.TLV(0x30, e[0], forge.TLV(3, []byte{0, 2 + point[65]&1}, point[2:34]))
}

// revocations concern issuers' revocation lists.
func (v *ekVendor) revocations() {
	ek := v.chain(v.issue(v.intermediate, v.p256, nil).Raw)
	stale := func(l *x509.RevocationList) { l.NextUpdate = v.Now.Add(-time.Second) }
	removed := func(l *x509.RevocationList) { l.RevokedCertificateEntries[0].ReasonCode = 8 }
	above := func(l *x509.RevocationList) {
		l.RevokedCertificateEntries[0].SerialNumber, l.RevokedCertificateEntries[0].ReasonCode = v.intermediate.cert.SerialNumber, 2
	}
	of, root, revoking := v.crl(v.intermediate, nil), v.crl(v.root, nil), v.revoking(v.intermediate, 77)
	v.accept("on-no-revocation-list", ek, v.requiring(v.revoking(v.intermediate, 78), root), trusted(v.p256))
	v.accept("removed-from-the-revocation-list", ek, v.withCRLs(v.revoking(v.intermediate, 77, removed)), trusted(v.p256))
	v.accept("without-a-revocation-list", ek, v.withCRLs(root), trusted(v.p256))
	v.refuse("revoked", ek, v.withCRLs(revoking, root))
	v.refuse("intermediate-revoked", ek, v.withCRLs(of, v.revoking(v.root, 0, above)))
	v.refuse("revoked-by-a-stale-list", ek, v.withCRLs(v.revoking(v.intermediate, 77, stale)))
	v.refuse("with-a-stale-revocation-list", ek, v.withCRLs(v.crl(v.intermediate, stale)))
	v.refuse("with-a-future-revocation-list", ek,
		v.withCRLs(v.crl(v.intermediate, func(l *x509.RevocationList) { l.ThisUpdate = v.Now.Add(time.Second) })))
	v.refuse("without-a-revocation-list-demanded", ek, v.requiring(root))
	v.refuse("with-a-forged-revocation-list", ek, v.requiring(damaged(of), root))
	sha1 := signedAnew(revoking, v.intermediate.key, true, unchanged)
	v.refuse("with-a-sha1-revocation-list", ek, v.requiring(sha1, root))
	let := v.withCRLs(sha1)
	let.EKIssuers[0].Profile = v.environment("InsecureAllowSHA1Links").EKIssuers[0].Profile
	v.refuse("revoked-by-a-sha1-list", ek, let)
	v.refuse("revoked-on-the-list", ek, v.listing(v.withCRLs(revoking)))
}

// lists concern TPMs that are denied by manufacturer and firmware.
func (v *ekVendor) lists() {
	deny := func(model string, first, last uint32) *vector.Environment {
		return v.denying("IFX", model, first, last)
	}
	of := func(manufacturer, model, version string) *vector.EK {
		return v.chain(v.issue(v.intermediate, v.p256, func(c *x509.Certificate) { c.ExtraExtensions[0] = directory(12, manufacturer, model, version) }).Raw)
	}
	const infineon = "id:49465800"
	ek := of(infineon, "SLB9670", "id:00070055") // 7.85
	v.refuse("denied", ek, deny("", 0x70000, 0x7ffff))
	v.refuse("denied-at-the-end", ek, deny("", 0, 0x70055))
	v.refuse("denied-by-model", ek, deny("SLB9670", 0, 0xffffffff))
	v.refuse("denied-by-a-short-version", of(infineon, "SLB9670", "id:0755"), deny("", 0x70055, 0x70055))
	v.refuse("denied-with-an-unreadable-version", of(infineon, "SLB9670", "7.85"), deny("", 0, 1))
	v.refuse("denied-on-the-list", ek, v.listing(deny("", 0x70000, 0x7ffff)))
	v.accept("not-denied", ek, deny("", 0, 0x70054), trusted(v.p256))
	v.accept("another-model-not-denied", ek, deny("SLB9665", 0, 0xffffffff), trusted(v.p256))
	v.accept("another-vendor-not-denied", of("id:53544D20", "ST33", "id:00070055"), deny("", 0, 0xffffffff), trusted(v.p256))
}
