package forge

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"math/big"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
)

// Forged is an attack on the certify statement. It becomes two vectors: the statement by
// itself, and, with -in-answer after its name, the same in a node's answer.
type Forged = Attack[func(*Forgery)]

// StatementAttacks are all attacks on the certify statement and the keys that it names.
func StatementAttacks() []Forged {
	return slices.Concat(attestAttacks(), nameAttacks(), keyAttacks(), AKAttacks(), signatureAttacks(), schemeAttacks())
}

// of applies a change of the signed bytes to the certify statement.
func of(how func(*Signing)) func(*Forgery) { return func(f *Forgery) { how(&f.Signing) } }

// after changes the evidence after it is signed.
func after(how func(*statement.CertifyEvidence)) func(*Forgery) {
	return func(f *Forgery) { f.After = how }
}

// rs changes the signature's value.
func rs(how func(*statement.Signature)) func(*Forgery) {
	return func(f *Forgery) { f.Signature = how }
}

// Area is the public area of the request's key with these attributes.
func (f *Forgery) Area(attributes statement.Attributes) *statement.Public {
	return softak.PublicArea(f.Key.Public(), attributes, softak.NoScheme)
}

// resident is the public area of a key in a TPM.
func resident(key crypto.PublicKey) *statement.Public {
	return softak.PublicArea(key, softak.ResidentAttributes, softak.NoScheme)
}

// attestAttacks concern the TPMS_ATTEST itself.
func attestAttacks() []Forged {
	return listed("certify statements", map[string]func(*Forgery){
		"forged-magic": of(patch(func(b []byte) []byte { b[3] ^= 1; return b })),
		"forged-quote": func(f *Forgery) {
			f.Attest.Type, f.Attest.Certified = tpm2.TPMSTAttestQuote, nil
			f.Attest.Quote = &statement.QuoteInfo{Selections: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}}}, PCRDigest: make([]byte, 32)}
		},
		"command-audit":                       of(patch(func(b []byte) []byte { b[4], b[5] = 0x80, 0x15; return b })),
		"statement-trailing-bytes":            of(patch(func(b []byte) []byte { return append(b, 0) })),
		"statement-truncated":                 of(patch(func(b []byte) []byte { return b[:len(b)-1] })),
		"statement-too-long":                  of(patch(func(b []byte) []byte { return append(b, make([]byte, 1024)...) })),
		"statement-safe-flag-not-boolean":     of(unsafe),
		"qualifying-data-absent":              func(f *Forgery) { f.Attest.ExtraData = nil },
		"qualifying-data-prefix":              func(f *Forgery) { f.Attest.ExtraData = f.Attest.ExtraData[:31] },
		"qualifying-data-extended":            func(f *Forgery) { f.Attest.ExtraData = append(bytes.Clone(f.Attest.ExtraData), 0) },
		"qualifying-data-other":               func(f *Forgery) { f.Attest.ExtraData = Derive("other qualifying data", 32) },
		"qualifying-data-is-the-binding-hash": func(f *Forgery) { f.Attest.ExtraData, _ = f.Secrets(f.B) },
	})
}

// nameAttacks concern the certified Name and the public area behind it.
func nameAttacks() []Forged {
	return listed("certified names", map[string]func(*Forgery){
		"name-of-another-key":     func(f *Forgery) { f.Attest.Certified.Name = resident(f.w.TLS2.Public()).Name() },
		"name-empty":              func(f *Forgery) { f.Attest.Certified.Name = nil },
		"name-is-algorithm-alone": func(f *Forgery) { f.Attest.Certified.Name = f.Attest.Certified.Name[:2] },
		"public-area-swapped":     func(f *Forgery) { f.Public = resident(f.w.TLS2.Public()) },
		"public-area-attributes-changed": func(f *Forgery) {
			f.Public = softak.Changed(f.Public, func(p *statement.Public) { p.Attributes &^= statement.AttributeUserWithAuth })
		},
		"public-area-trailing-bytes":          after(func(e *statement.CertifyEvidence) { e.Public = append(bytes.Clone(e.Public), 0) }),
		"public-area-absent":                  after(func(e *statement.CertifyEvidence) { e.Public = nil }),
		"request-key-swapped":                 func(f *Forgery) { f.Certify(resident(f.w.TLS2.Public())) },
		"sha1-name":                           certifies(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }),
		"qualified-name-absent":               func(f *Forgery) { f.Attest.Certified.QualifiedName = nil },
		"qualified-name-of-another-algorithm": func(f *Forgery) { f.Attest.Certified.QualifiedName = append([]byte{0, 0x0c}, make([]byte, 48)...) },
	})
}

// keyAttacks concern the certified key.
func keyAttacks() []Forged {
	public := func(a statement.Attributes) func(*Forgery) { return func(f *Forgery) { f.Certify(f.Area(a)) } }
	external := func(a statement.Attributes) func(*Forgery) { return func(f *Forgery) { f.CertifyExternal(f.Area(a)) } }
	onAK := func(certify func(*Forgery)) func(*Forgery) { // the AK's key is also the request's
		return func(f *Forgery) { *f = *f.w.Forge(f.AK, f.WithKey(f.w, f.AK.Private)); certify(f) }
	}
	return listed("certified keys", map[string]func(*Forgery){
		"external-key-claims-fixed-tpm":       func(f *Forgery) { f.CertifyExternal(f.Public) },
		"external-key-claims-fixed-parent":    external(SoftwareAttributes | statement.AttributeFixedParent),
		"software-key-passed-off-as-resident": external(SoftwareAttributes | statement.AttributeSensitiveDataOrigin),
		"imported-key-passed-off-as-resident": public(SoftwareAttributes),
		"key-fixed-tpm-without-fixed-parent":  public(softak.ResidentAttributes &^ statement.AttributeFixedParent),
		"key-cannot-sign":                     public(softak.ResidentAttributes&^statement.AttributeSign | statement.AttributeDecrypt),
		"key-restricted":                      public(softak.AKAttributes),
		"key-x509sign":                        public(softak.ResidentAttributes | statement.AttributeX509Sign),
		"ak-certified-as-tls-key":             onAK(func(f *Forgery) { f.Certify(f.AK.Public); f.Options = []string{"allowRestrictedKey"} }),
		"ak-certified-under-other-attributes": onAK(external(SoftwareAttributes)),
		"weak-curve":                          after(func(e *statement.CertifyEvidence) { e.Public = withCurve(e.Public, 14, 1) }),
		"point-off-the-curve":                 certifies(offCurve),
	})
}

// certifies makes the statement certify a changed public area.
func certifies(how func(*statement.Public)) func(*Forgery) {
	return func(f *Forgery) { f.Certify(softak.Changed(f.Public, how)) }
}

// offCurve changes the last bit of Y.
func offCurve(p *statement.Public) {
	p.Y = bytes.Clone(p.Y)
	p.Y[len(p.Y)-1] ^= 1
}

// withCurve writes a curve identifier at an offset of a public area.
func withCurve(raw []byte, offset int, curve byte) []byte {
	raw = bytes.Clone(raw)
	raw[offset], raw[offset+1] = 0, curve
	return raw
}

// orderP256 returns the order of P-256 and its neighbours, 32 bytes each.
func orderP256(plus int64) []byte {
	return new(big.Int).Add(elliptic.P256().Params().N, big.NewInt(plus)).FillBytes(make([]byte, 32))
}

// changesAK changes the AK's public area.
func changesAK(how func(*statement.Public)) func(*Forgery) {
	return func(f *Forgery) { f.changeAK(how) }
}

// akWith gives the AK's public area other attributes.
func akWith(attributes statement.Attributes) func(*Forgery) {
	return changesAK(func(p *statement.Public) { p.Attributes = attributes })
}

// AKAttacks concern the public area of the AK that signs. Its key stays the one in its
// certificate.
func AKAttacks() []Forged {
	return listed("AKs", map[string]func(*Forgery){
		"ak-not-restricted":        akWith(softak.AKAttributes &^ statement.AttributeRestricted),
		"ak-can-decrypt":           akWith(softak.AKAttributes | statement.AttributeDecrypt),
		"ak-cannot-sign":           akWith(softak.AKAttributes &^ statement.AttributeSign),
		"ak-not-fixed-tpm":         akWith(softak.AKAttributes &^ statement.AttributeFixedTPM),
		"ak-not-fixed-parent":      akWith(softak.AKAttributes &^ statement.AttributeFixedParent),
		"ak-made-outside":          akWith(softak.AKAttributes &^ statement.AttributeSensitiveDataOrigin),
		"ak-x509sign":              akWith(softak.AKAttributes | statement.AttributeX509Sign),
		"ak-encrypted-duplication": akWith(softak.AKAttributes | statement.AttributeEncryptedDuplication),
		"ak-null-scheme":           changesAK(func(p *statement.Public) { p.Scheme = softak.NoScheme }),
		"ak-ecdaa": changesAK(func(p *statement.Public) {
			p.Scheme = statement.KeyScheme{Alg: tpm2.TPMAlgECDAA, Hash: tpm2.TPMAlgSHA256, Count: 1}
		}),
		"ak-symmetric-scheme": changesAK(func(p *statement.Public) {
			p.Symmetric = statement.SymmetricScheme{Alg: tpm2.TPMAlgAES, KeyBits: 128, Mode: tpm2.TPMAlgCFB}
		}),
		"ak-sha1-name":                          changesAK(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }),
		"ak-off-the-curve":                      changesAK(offCurve),
		"ak-weak-curve":                         func(f *Forgery) { f.AKPublic = withCurve(f.AKPublic, 16, 2) },
		"ak-weak-rsa":                           func(f *Forgery) { *f = *f.w.Forge(f.w.NewSoftAK(f.w.RSA1024, softak.RSASSA, MachineOne), f.Join) },
		"ak-public-trailing-bytes":              func(f *Forgery) { f.AKPublic = append(bytes.Clone(f.AKPublic), 0) },
		"ak-loaded-from-outside":                func(f *Forgery) { f.Attest.QualifiedSigner = f.AK.Public.Name() },
		"qualified-signer-absent":               func(f *Forgery) { f.Attest.QualifiedSigner = nil },
		"qualified-signer-of-another-algorithm": func(f *Forgery) { f.Attest.QualifiedSigner = append([]byte{0, 0x0c}, make([]byte, 48)...) },
	})
}

// signatureAttacks concern the signature's value.
func signatureAttacks() []Forged {
	return listed("signatures", map[string]func(*Forgery){
		"signature-over-other-bytes": func(f *Forgery) {
			f.After = func(e *statement.CertifyEvidence) {
				e.Attest = bytes.Clone(e.Attest)
				e.Attest[6+2+len(f.Attest.QualifiedSigner)+2+len(f.Attest.ExtraData)+7] ^= 1
			}
		},
		"signature-by-another-key":           func(f *Forgery) { f.SignedBy(f.w.AKOther) },
		"signature-structure-truncated":      after(func(e *statement.CertifyEvidence) { e.Signature = e.Signature[:len(e.Signature)-1] }),
		"signature-structure-trailing-bytes": after(func(e *statement.CertifyEvidence) { e.Signature = append(e.Signature, 0) }),
		"ecdsa-r-zero":                       rs(func(v *statement.Signature) { v.R = make([]byte, 32) }),
		"ecdsa-r-empty":                      rs(func(v *statement.Signature) { v.R = nil }),
		"ecdsa-s-zero":                       rs(func(v *statement.Signature) { v.S = make([]byte, 32) }),
		"ecdsa-r-is-the-order":               rs(func(v *statement.Signature) { v.R = orderP256(0) }),
		"ecdsa-s-is-the-order":               rs(func(v *statement.Signature) { v.S = orderP256(0) }),
		"ecdsa-s-over-the-order":             rs(func(v *statement.Signature) { v.S = bytes.Repeat([]byte{0xff}, 32) }),
		"ecdsa-r-just-under-the-order":       rs(func(v *statement.Signature) { v.R = orderP256(-1) }),
		"ecdsa-r-plus-the-order": rs(func(v *statement.Signature) {
			sum := new(big.Int).Add(new(big.Int).SetBytes(v.R), new(big.Int).SetBytes(orderP256(0)))
			v.R = sum.FillBytes(make([]byte, 33))
		}),
	})
}

// schemeAttacks concern the signature's scheme and hash.
func schemeAttacks() []Forged {
	return listed("signature schemes", map[string]func(*Forgery){
		"signature-with-another-hash": func(f *Forgery) { f.Scheme.Hash = tpm2.TPMAlgSHA384 },
		"signature-is-an-hmac":        after(func(e *statement.CertifyEvidence) { e.Signature = append([]byte{0, 5, 0, 0x0b}, make([]byte, 32)...) }),
	})
}
