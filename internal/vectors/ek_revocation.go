package main

import (
	"crypto/x509"
	"math/big"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
)

// withdrawals are EKs that lists or deny-lists withdrew, and what tries to get past
// them: other spellings of a name, lists that cannot be used, another issuer, an EK
// without its certificate.
func (w *world) withdrawals() {
	v := w.newEKVendor()
	v.spellings()
	v.uselessLists()
	v.aroundLists()
	v.vendorSpellings()
}

// revoking is a list of the CA that revokes one serial number.
func (v *ekVendor) revoking(by *ekCA, serial int64, edit func(*x509.RevocationList)) []byte {
	return v.crl(by, func(l *x509.RevocationList) {
		l.RevokedCertificateEntries = []x509.RevocationListEntry{{SerialNumber: big.NewInt(serial), RevocationTime: v.Now.Add(-time.Hour), ReasonCode: 1}}
		if edit != nil {
			edit(l)
		}
	})
}

func (v *ekVendor) withCRLs(lists ...[]byte) *vector.Environment {
	e := v.environment()
	e.EKIssuers[0].CRLs = lists
	return e
}

// spelt is the CA under another spelling of its name.
func (ca *ekCA) spelt(tag byte, name string) *ekCA {
	out := *ca.cert
	out.RawSubject = forge.TLV(0x30, forge.TLV(0x31, forge.TLV(0x30, forge.TLV(6, []byte(oid.CommonName)), forge.TLV(tag, []byte(name)))))
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
		v.refuse("revoked-by-a-list-in-"+s.name, "The list that revokes the certificate spells the CA's name with "+s.what+".", "certificate-revoked",
			ek, v.withCRLs(v.revoking(ca, 77, nil)))
		e := v.withCRLs(v.revoking(ca, 78, nil), v.crl(v.root, nil))
		e.EKIssuers[0].RequireCRL = true
		v.accept("on-no-list-in-"+s.name, "The list spells the CA's name with "+s.what+", and has another certificate.", ek, e, trusted(v.p256))
	}
}

func (v *ekVendor) uselessLists() {
	ek := v.chain(v.issue(v.intermediate, v.p256, nil).Raw)
	list := v.revoking(v.intermediate, 78, nil)
	damaged := slices.Clone(list)
	damaged[len(damaged)-1] ^= 1
	const unknown = "certificate-revocation-unknown"
	v.refuse("with-a-damaged-list-undemanded", "The list of the intermediate does not verify, and none is demanded.", unknown, ek, v.withCRLs(damaged))
	v.refuse("with-a-sha1-list-undemanded", "The list is signed over SHA-1, which is not let through, and none is demanded.", unknown, ek,
		v.withCRLs(signedAnew(list, v.intermediate.key, true, unchanged)))
	v.refuse("with-a-list-of-another-key", "The list of the intermediate's name is signed by another key.", unknown, ek,
		v.withCRLs(v.revoking(&ekCA{v.intermediate.cert, v.root.key}, 78, nil)))
	noSigner := v.newCA(v.root, "EK intermediate without cRLSign", v.intermediate.key, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign })
	may := *noSigner.cert
	may.KeyUsage |= x509.KeyUsageCRLSign
	v.refuse("with-a-list-of-no-signer", "The key usage of the CA that signed the list lacks cRLSign.", unknown,
		&vector.EK{Certificates: [][]byte{v.issue(noSigner, v.p256, nil).Raw, noSigner.cert.Raw}}, v.withCRLs(v.revoking(&ekCA{&may, noSigner.key}, 78, nil)))
	v.refuse("with-a-list-under-another-name", "The list is signed by the intermediate's key and names another CA.", unknown, ek,
		v.withCRLs(v.revoking(v.intermediate.spelt(19, "EK intermediate 2"), 78, nil)))
}

func (v *ekVendor) aroundLists() {
	ek, bare := v.chain(v.issue(v.intermediate, v.p256, nil).Raw), &vector.EK{PublicKey: forge.SPKI(v.p256)}
	revoked := v.revoking(v.intermediate, 77, nil)
	issuers := v.withCRLs(revoked)
	issuers.EKIssuers = append(issuers.EKIssuers, v.environment("KeyEnciphermentOfECC").EKIssuers...)
	v.refuse("revoked-under-the-first-of-two-issuers", "The list of one issuer revokes the certificate; another one of the same root has no lists.", "certificate-revoked", ek, issuers)
	swapped := &vector.Environment{EKIssuers: []vector.EKIssuer{issuers.EKIssuers[1], issuers.EKIssuers[0]}}
	v.refuse("revoked-under-the-second-of-two-issuers", "The issuer that comes first has no lists; the list of the next one of the same root revokes the certificate.", "certificate-revoked", ek, swapped)

	listed := v.withCRLs(revoked)
	listed.AllowedEKs = []string{identityOf(v.p256)}
	v.refuse("revoked-on-the-list-without-certificate", "The certificate is revoked; the node sends the EK alone, which is on the allow-list.", "ek-unjudged", bare, listed)
	foreign := v.newCA(nil, "foreign root of a revoked EK", v.root.key, nil)
	v.refuse("revoked-on-the-list-under-another-certificate", "The certificate is revoked; the node sends one of its own making for the same EK, which is on the allow-list.",
		"ek-unjudged", &vector.EK{Certificates: [][]byte{v.issue(foreign, v.p256, nil).Raw}}, listed)
	denied := v.environment()
	denied.AllowedEKs = listed.AllowedEKs
	denied.DeniedTPMs = []vector.DeniedTPM{{Vendor: "IFX", Last: 0xffffffff, Reason: "a flaw"}}
	v.refuse("denied-on-the-list-without-certificate", "The TPM is denied; the node sends the EK alone, which is on the allow-list.", "ek-unjudged", bare, denied)
}

func (v *ekVendor) vendorSpellings() {
	deny := func(vendor string) *vector.Environment {
		e := v.environment()
		e.DeniedTPMs = []vector.DeniedTPM{{Vendor: vendor, Last: 0xffffffff, Reason: "a flaw"}}
		return e
	}
	of := func(tag byte, manufacturer string) *vector.EK {
		return v.chain(v.issue(v.intermediate, v.p256, func(c *x509.Certificate) {
			rdn := func(id oid.OID, tag byte, value string) []byte {
				return forge.TLV(0x31, forge.TLV(0x30, forge.TLV(6, []byte(id)), forge.TLV(tag, []byte(value))))
			}
			c.ExtraExtensions[0].Value = forge.TLV(0x30, forge.TLV(0xa4, forge.TLV(0x30, rdn(oid.TCGAtTPMManufacturer, tag, manufacturer),
				rdn(oid.TCGAtTPMModel, 12, "SLB9670"), rdn(oid.TCGAtTPMVersion, 12, "id:00070055"))))
		}).Raw)
	}
	const bmp = "\x00i\x00d\x00:\x004\x009\x004\x006\x005\x008\x000\x000"
	good := of(12, "id:49465800")
	v.refuse("denied-by-identifier", "The TPM's vendor is denied by its identifier.", "tpm-denied", good, deny("id:49465800"))
	v.refuse("denied-in-lower-case", "The TPM's vendor is denied, in lower case.", "tpm-denied", good, deny("ifx"))
	v.refuse("denied-filled-with-spaces", "The vendor's identifier is filled up with a space in the certificate and with a zero in the list.", "tpm-denied", of(12, "id:53544D20"), deny("id:53544d00"))
	v.refuse("denied-with-a-bmp-manufacturer", "The manufacturer stands in a BMPString, and is denied.", "tpm-denied", of(30, bmp), deny("IFX"))
	v.accept("with-a-bmp-manufacturer", "The manufacturer stands in a BMPString, and another one is denied.", of(30, bmp), deny("STM"), trusted(v.p256))
	v.refuse("with-a-manufacturer-without-id", "The manufacturer is the text of its identifier, without id: and digits.", "certificate-subject-alt-name", of(12, "STM "), deny("IFX"))
	v.refuse("with-a-manufacturer-of-no-string", "The manufacturer is an OCTET STRING.", "certificate-subject-alt-name", of(4, "id:49465800"), deny("STM"))
}
