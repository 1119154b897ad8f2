package forge

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// Forged is an attack on the certify statement. It becomes two vectors: the statement
// alone, and, with -in-answer behind its name, the same in the answer of a node.
type Forged = Attack[func(*Forgery)]

// StatementAttacks are all attacks on the certify statement and the keys that it names.
func StatementAttacks() []Forged {
	return slices.Concat(attestAttacks(), nameAttacks(), keyAttacks(), AKAttacks(), signatureAttacks(), schemeAttacks())
}

// of has a change of what is signed be one of the certify statement.
func of(how func(*Signing)) func(*Forgery) { return func(f *Forgery) { how(&f.Signing) } }

// after changes the evidence once it is signed.
func after(how func(*statement.CertifyEvidence)) func(*Forgery) {
	return func(f *Forgery) { f.after = how }
}

// Area is the public area of the request's key with these attributes.
func (f *Forgery) Area(attributes statement.Attributes) *statement.Public {
	return PublicArea(f.Key.Public(), attributes, NoScheme)
}

// resident is the public area of a key in a TPM.
func resident(key crypto.PublicKey) *statement.Public {
	return PublicArea(key, ResidentAttributes, NoScheme)
}

// attestAttacks are about the TPMS_ATTEST itself.
func attestAttacks() []Forged {
	return []Forged{
		{Name: "forged-magic", What: "The AK signed a structure that begins with other bytes than TPM_GENERATED_VALUE, as a key that is not restricted would.", Expect: "attest-magic",
			Change: of(patch(func(b []byte) []byte { b[3] ^= 1; return b }))},
		{Name: "forged-quote", What: "A quote with the right qualifying data stands in place of the certify statement.", Expect: "attest-type",
			Change: func(f *Forgery) {
				f.Attest.Type, f.Attest.Certified = tpm2.TPMSTAttestQuote, nil
				f.Attest.Quote = &statement.QuoteInfo{Selections: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}}}, PCRDigest: make([]byte, 32)}
			}},
		{Name: "command-audit", What: "The statement's type says command audit over the bytes of a certify statement.", Expect: "attest-type",
			Change: of(patch(func(b []byte) []byte { b[4], b[5] = 0x80, 0x15; return b }))},
		{Name: "statement-with-bytes-behind", What: "A byte stands behind the TPMS_ATTEST, under the signature.", Expect: "attest-encoding",
			Change: of(patch(func(b []byte) []byte { return append(b, 0) }))},
		{Name: "statement-truncated", What: "The TPMS_ATTEST lacks its last byte, under the signature.", Expect: "attest-encoding",
			Change: of(patch(func(b []byte) []byte { return b[:len(b)-1] }))},
		{Name: "statement-too-long", What: "The TPMS_ATTEST is over 1024 bytes, under the signature.", Expect: "attest-size",
			Change: of(patch(func(b []byte) []byte { return append(b, make([]byte, 1024)...) }))},
		{Name: "statement-safe-flag-not-boolean", What: "The clock's safe flag is 2, which is no TPMI_YES_NO.", Expect: "attest-encoding",
			Change: of(unsafe)},
		{Name: "qualifying-data-absent", What: "The statement has no qualifying data.", Expect: "qualifying-data",
			Change: func(f *Forgery) { f.Attest.ExtraData = nil }},
		{Name: "qualifying-data-prefix", What: "The statement has the first 31 bytes of the qualifying data.", Expect: "qualifying-data",
			Change: func(f *Forgery) { f.Attest.ExtraData = f.Attest.ExtraData[:31] }},
		{Name: "qualifying-data-extended", What: "The statement has the qualifying data with a zero byte behind it.", Expect: "qualifying-data",
			Change: func(f *Forgery) { f.Attest.ExtraData = append(bytes.Clone(f.Attest.ExtraData), 0) }},
		{Name: "qualifying-data-other", What: "The statement has other qualifying data of the same length.", Expect: "qualifying-data",
			Change: func(f *Forgery) { f.Attest.ExtraData = Derive("other qualifying data", 32) }},
		{Name: "qualifying-data-is-the-binding-hash", live: "qualifying-data-is-the-secret", What: "The qualifying data is the challenge's secret itself, not what follows from it.", Expect: "qualifying-data",
			Change: func(f *Forgery) { f.Attest.ExtraData, _ = f.Secrets(f.B) }},
	}
}

// nameAttacks are about the certified Name and the public area behind it.
func nameAttacks() []Forged {
	return []Forged{
		{Name: "name-of-another-key", What: "The certified Name is that of another key than the public area sent along.", Expect: "certified-name",
			Change: func(f *Forgery) { f.Attest.Certified.Name = resident(f.w.TLS2.Public()).Name() }},
		{Name: "name-empty", What: "The certified Name is empty.", Expect: "certified-name",
			Change: func(f *Forgery) { f.Attest.Certified.Name = nil }},
		{Name: "name-is-algorithm-alone", What: "The certified Name is its algorithm without a digest.", Expect: "certified-name",
			Change: func(f *Forgery) { f.Attest.Certified.Name = f.Attest.Certified.Name[:2] }},
		{Name: "public-area-swapped", What: "The public area sent along is that of another key.", Expect: "certified-name",
			Change: func(f *Forgery) { f.Public = resident(f.w.TLS2.Public()) }},
		{Name: "public-area-attributes-changed", What: "The public area sent along has other attributes than the one certified.", Expect: "certified-name",
			Change: func(f *Forgery) {
				f.Public = Changed(f.Public, func(p *statement.Public) { p.Attributes &^= statement.AttributeUserWithAuth })
			}},
		{Name: "public-area-with-bytes-behind", What: "A byte stands behind the public area.", Expect: "public-encoding",
			Change: after(func(e *statement.CertifyEvidence) { e.Public = append(bytes.Clone(e.Public), 0) })},
		{Name: "public-area-absent", What: "There is no public area of the certified key.", Expect: "public-size", InAnswer: "message-encoding",
			Change: after(func(e *statement.CertifyEvidence) { e.Public = nil })},
		{Name: "request-key-swapped", What: "The statement certifies another key than the one in the request.", Expect: "key-mismatch",
			Change: func(f *Forgery) { f.Certify(resident(f.w.TLS2.Public())) }},
		{Name: "request-key-of-another-kind", live: "-", What: "The statement certifies an RSA key, the request has a key on P-256.", Expect: "key-mismatch",
			Change: func(f *Forgery) { f.Certify(resident(f.w.RSATLS.Public())) }},
		{Name: "sha1-name", What: "The certified key's Name is a SHA-1 digest.", Expect: "name-algorithm",
			Change: certifies(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 })},
		{Name: "qualified-name-absent", What: "The certified Qualified Name is empty.", Expect: "certified-qualified-name",
			Change: func(f *Forgery) { f.Attest.Certified.QualifiedName = nil }},
		{Name: "qualified-name-of-another-algorithm", What: "The certified Qualified Name is under SHA-384, the Name under SHA-256.", Expect: "certified-qualified-name",
			Change: func(f *Forgery) { f.Attest.Certified.QualifiedName = append([]byte{0, 0x0c}, make([]byte, 48)...) }},
	}
}

// keyAttacks are about the certified key.
func keyAttacks() []Forged {
	public := func(a statement.Attributes) func(*Forgery) { return func(f *Forgery) { f.Certify(f.Area(a)) } }
	external := func(a statement.Attributes) func(*Forgery) { return func(f *Forgery) { f.CertifyExternal(f.Area(a)) } }
	onAK := func(certify func(*Forgery)) func(*Forgery) { // the AK's key is the request's too
		return func(f *Forgery) { *f = *f.w.Forge(f.AK, f.WithKey(f.w, f.AK.Private)); certify(f) }
	}
	return []Forged{
		{Name: "external-key-claims-fixed-tpm", What: "A key that was loaded from outside (its Qualified Name is its Name) says fixedTPM.", Expect: "key-residency-claim",
			Change: func(f *Forgery) { f.CertifyExternal(f.Public) }},
		{Name: "external-key-claims-fixed-parent", What: "A key that was loaded from outside says fixedParent.", Expect: "key-residency-claim",
			Change: external(SoftwareAttributes | statement.AttributeFixedParent)},
		{Name: "software-key-passed-off-as-resident", Resident: true, What: "Keys must live in the TPM, and a software key was loaded with sensitiveDataOrigin set.", Expect: "key-residency",
			Change: external(SoftwareAttributes | statement.AttributeSensitiveDataOrigin)},
		{Name: "imported-key-passed-off-as-resident", Resident: true, What: "Keys must live in the TPM, and the certified one has a parent but not fixedTPM.", Expect: "key-residency",
			Change: public(SoftwareAttributes)},
		{Name: "key-fixed-tpm-without-fixed-parent", What: "The certified key has fixedTPM without fixedParent, which no TPM allows.", Expect: "key-attributes",
			Change: public(ResidentAttributes &^ statement.AttributeFixedParent)},
		{Name: "key-cannot-sign", What: "The certified key can decrypt and not sign.", Expect: "key-attributes",
			Change: public(ResidentAttributes&^statement.AttributeSign | statement.AttributeDecrypt)},
		{Name: "key-restricted", What: "The certified key is restricted, an attestation key itself.", Expect: "key-attributes", Change: public(AKAttributes)},
		{Name: "key-x509sign", What: "The certified key has x509sign.", Expect: "key-attributes", Change: public(ResidentAttributes | statement.AttributeX509Sign)},
		{Name: "ak-certified-as-tls-key", live: "ak-certified-by-itself", What: "The AK certifies itself, and the request is for the AK's key.", Expect: "ak-is-certified-key",
			Change: onAK(func(f *Forgery) { f.Certify(f.AK.Public); f.Options = []string{"allowRestrictedKey"} })},
		{Name: "ak-certified-under-other-attributes", live: "ak-certified-as-tls-key", What: "The AK's key, loaded from outside as a plain signing key, is certified for a request with that key.", Expect: "ak-is-certified-key",
			Change: onAK(external(SoftwareAttributes))},
		{Name: "weak-rsa", live: "-", What: "The certified key, and the request's, is RSA with 1024 bits.", Expect: "key-strength", InCSR: true,
			Change: func(f *Forgery) { *f = *f.w.Forge(f.AK, f.WithKey(f.w, Repeatable{f.w.RSA1024})) }},
		{Name: "weak-rsa-says-2048", live: "-", What: "The certified public area says 2048 bits and holds a modulus of 1024.", Expect: "public-encoding",
			Change: func(f *Forgery) {
				f.Certify(Changed(resident(f.w.RSA1024.Public()), func(p *statement.Public) { p.KeyBits = 2048 }))
			}},
		{Name: "rsa-exponent-3", live: "-", What: "The certified key has the RSA exponent 3.", Expect: "key-strength",
			Change: func(f *Forgery) { f.Certify(resident(&rsa.PublicKey{N: f.w.RSATLS.N, E: 3})) }},
		{Name: "weak-curve", What: "The certified public area says curve P-192.", Expect: "key-strength",
			Change: after(func(e *statement.CertifyEvidence) { e.Public = withCurve(e.Public, 14, 1) })},
		{Name: "point-off-the-curve", What: "The certified public area holds a point that is not on its curve, under its own Name.", Expect: "key-point",
			Change: certifies(offCurve)},
	}
}

// certifies has the statement certify a changed public area.
func certifies(how func(*statement.Public)) func(*Forgery) {
	return func(f *Forgery) { f.Certify(Changed(f.Public, how)) }
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

// orderP256 and its neighbours, 32 bytes each.
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

// AKAttacks are about the public area of the AK that signs. Its key stays the one in
// its certificate.
func AKAttacks() []Forged {
	return []Forged{
		{Name: "ak-not-restricted", What: "The AK is not restricted, so it signs anything.", Expect: "ak-attributes", Change: akWith(AKAttributes &^ statement.AttributeRestricted)},
		{Name: "ak-can-decrypt", live: "ak-decrypts", What: "The AK can decrypt too.", Expect: "ak-attributes", Change: akWith(AKAttributes | statement.AttributeDecrypt)},
		{Name: "ak-cannot-sign", What: "The AK's public area says that it does not sign.", Expect: "ak-attributes", Change: akWith(AKAttributes &^ statement.AttributeSign)},
		{Name: "ak-not-fixed-tpm", What: "The AK may leave its TPM.", Expect: "ak-attributes", Change: akWith(AKAttributes &^ statement.AttributeFixedTPM)},
		{Name: "ak-not-fixed-parent", What: "The AK may be given another parent.", Expect: "ak-attributes", Change: akWith(AKAttributes &^ statement.AttributeFixedParent)},
		{Name: "ak-made-outside", live: "ak-made-elsewhere", What: "The AK's private part was not made in a TPM (sensitiveDataOrigin clear).", Expect: "ak-attributes", Change: akWith(AKAttributes &^ statement.AttributeSensitiveDataOrigin)},
		{Name: "ak-x509sign", What: "The AK signs certificates (x509sign).", Expect: "ak-attributes", Change: akWith(AKAttributes | statement.AttributeX509Sign)},
		{Name: "ak-encrypted-duplication", What: "The AK has encryptedDuplication with fixedTPM, which no TPM allows.", Expect: "ak-attributes", Change: akWith(AKAttributes | statement.AttributeEncryptedDuplication)},
		{Name: "ak-null-scheme", What: "The AK has no scheme of its own: a restricted key without one cannot exist.", Expect: "ak-scheme",
			Change: changesAK(func(p *statement.Public) { p.Scheme = NoScheme })},
		{Name: "ak-ecdaa", What: "The AK's scheme is ECDAA, which hides which TPM signed.", Expect: "ak-scheme",
			Change: changesAK(func(p *statement.Public) {
				p.Scheme = statement.KeyScheme{Alg: tpm2.TPMAlgECDAA, Hash: tpm2.TPMAlgSHA256, Count: 1}
			})},
		{Name: "ak-symmetric-scheme", What: "The AK has a storage key's symmetric scheme.", Expect: "ak-scheme",
			Change: changesAK(func(p *statement.Public) {
				p.Symmetric = statement.SymmetricScheme{Alg: tpm2.TPMAlgAES, KeyBits: 128, Mode: tpm2.TPMAlgCFB}
			})},
		{Name: "ak-sha1-name", What: "The AK's Name is a SHA-1 digest.", Expect: "name-algorithm",
			Change: changesAK(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 })},
		{Name: "ak-off-the-curve", What: "The AK's public area holds a point that is not on its curve.", Expect: "key-point", InAnswer: "ak-mismatch",
			Change: changesAK(offCurve)},
		{Name: "ak-weak-curve", What: "The AK's public area says curve P-224.", Expect: "key-strength",
			Change: func(f *Forgery) { f.AKPublic = withCurve(f.AKPublic, 16, 2) }},
		{Name: "ak-weak-rsa", live: "-", What: "The AK is RSA with 1024 bits, certified by the right CA.", Expect: "key-strength",
			Change: func(f *Forgery) { *f = *f.w.Forge(f.w.NewSoftAK(f.w.RSA1024, schemeRSASSA, MachineOne), f.Join) }},
		{Name: "ak-public-with-bytes-behind", What: "A byte stands behind the AK's public area.", Expect: "public-encoding",
			Change: func(f *Forgery) { f.AKPublic = append(bytes.Clone(f.AKPublic), 0) }},
		{Name: "ak-loaded-from-outside", What: "The qualified signer is the AK's bare Name: a key that was loaded from outside.", Expect: "qualified-signer",
			Change: func(f *Forgery) { f.Attest.QualifiedSigner = f.AK.Public.Name() }},
		{Name: "qualified-signer-absent", What: "The qualified signer is empty, as where a TPM did not sign.", Expect: "qualified-signer",
			Change: func(f *Forgery) { f.Attest.QualifiedSigner = nil }},
		{Name: "qualified-signer-of-another-algorithm", What: "The qualified signer is under SHA-384, the AK's Name under SHA-256.", Expect: "qualified-signer",
			Change: func(f *Forgery) { f.Attest.QualifiedSigner = append([]byte{0, 0x0c}, make([]byte, 48)...) }},
	}
}

// signatureAttacks are about the signature's value.
func signatureAttacks() []Forged {
	rs := func(how func(*statement.Signature)) func(*Forgery) { return func(f *Forgery) { f.Signature = how } }
	return []Forged{
		{Name: "signature-bit-flipped", What: "One bit of the signature was changed.", Expect: "signature", RSA: true,
			Change: rs(func(v *statement.Signature) { v.RSA[100] ^= 1 })},
		{Name: "signature-over-other-bytes", live: "signature-of-another-statement", What: "One bit of the statement's clock was changed behind the signature.", Expect: "signature",
			Change: func(f *Forgery) {
				f.after = func(e *statement.CertifyEvidence) {
					e.Attest = bytes.Clone(e.Attest)
					e.Attest[6+2+len(f.Attest.QualifiedSigner)+2+len(f.Attest.ExtraData)+7] ^= 1
				}
			}},
		{Name: "signature-by-another-key", What: "The statement was signed by another AK than the one that is named.", Expect: "signature",
			Change: func(f *Forgery) { f.SignedBy(f.w.AKOther) }},
		{Name: "signature-truncated", What: "The RSA signature lacks its last byte, its size says so.", Expect: "signature-length", RSA: true,
			Change: rs(func(v *statement.Signature) { v.RSA = v.RSA[:len(v.RSA)-1] })},
		{Name: "signature-extended", What: "The RSA signature has a zero byte in front, its size says so.", Expect: "signature-length", RSA: true,
			Change: rs(func(v *statement.Signature) { v.RSA = append([]byte{0}, v.RSA...) })},
		{Name: "signature-structure-truncated", live: "signature-truncated", What: "The TPMT_SIGNATURE ends before its size does.", Expect: "signature-encoding",
			Change: after(func(e *statement.CertifyEvidence) { e.Signature = e.Signature[:len(e.Signature)-1] })},
		{Name: "signature-structure-with-bytes-behind", live: "signature-with-bytes-behind", What: "A byte stands behind the TPMT_SIGNATURE.", Expect: "signature-encoding",
			Change: after(func(e *statement.CertifyEvidence) { e.Signature = append(e.Signature, 0) })},
		{Name: "signature-absent", live: "-", What: "There is no signature.", Expect: "signature-size", Alone: true,
			Change: after(func(e *statement.CertifyEvidence) { e.Signature = nil })},
		{Name: "ecdsa-r-zero", What: "The ECDSA signature has r = 0.", Expect: "signature-range", Change: rs(func(v *statement.Signature) { v.R = make([]byte, 32) })},
		{Name: "ecdsa-r-empty", What: "The ECDSA signature has an r of no bytes.", Expect: "signature-range", Change: rs(func(v *statement.Signature) { v.R = nil })},
		{Name: "ecdsa-s-zero", What: "The ECDSA signature has s = 0.", Expect: "signature-range", Change: rs(func(v *statement.Signature) { v.S = make([]byte, 32) })},
		{Name: "ecdsa-r-is-the-order", What: "The ECDSA signature has r = the order of the curve.", Expect: "signature-range", Change: rs(func(v *statement.Signature) { v.R = orderP256(0) })},
		{Name: "ecdsa-s-is-the-order", What: "The ECDSA signature has s = the order of the curve.", Expect: "signature-range", Change: rs(func(v *statement.Signature) { v.S = orderP256(0) })},
		{Name: "ecdsa-s-over-the-order", What: "The ECDSA signature has an s of all ones.", Expect: "signature-range",
			Change: rs(func(v *statement.Signature) { v.S = bytes.Repeat([]byte{0xff}, 32) })},
		{Name: "ecdsa-r-just-under-the-order", What: "The ECDSA signature has r = the order of the curve less one: in range, and wrong.", Expect: "signature",
			Change: rs(func(v *statement.Signature) { v.R = orderP256(-1) })},
		{Name: "ecdsa-r-plus-the-order", What: "The order of the curve was added to the signature's r, which makes it a byte wider.", Expect: "signature-length",
			Change: rs(func(v *statement.Signature) {
				sum := new(big.Int).Add(new(big.Int).SetBytes(v.R), new(big.Int).SetBytes(orderP256(0)))
				v.R = sum.FillBytes(make([]byte, 33))
			})},
	}
}

// schemeAttacks are about the signature's scheme and hash.
func schemeAttacks() []Forged {
	return []Forged{
		{Name: "sha1-signature", What: "The AK's own scheme, and the signature, is over SHA-1.", Expect: "signature-hash", RSA: true,
			Change: func(f *Forgery) { f.Rescheme(sha1RSASSA) }},
		{Name: "signature-with-another-hash", live: "signature-of-another-hash", What: "The statement is signed with SHA-384, the AK's own hash is SHA-256.", Expect: "signature-scheme",
			Change: func(f *Forgery) { f.scheme.Hash = tpm2.TPMAlgSHA384 }},
		{Name: "signature-with-another-scheme", What: "The statement is signed with RSAPSS, the AK's own scheme is RSASSA.", Expect: "signature-scheme", RSA: true,
			Change: func(f *Forgery) { f.scheme = SchemeRSAPSS }},
		{Name: "signature-sha1-for-a-sha256-ak", What: "The statement is signed with SHA-1, the AK's own hash is SHA-256.", Expect: "signature-scheme", RSA: true,
			Change: func(f *Forgery) { f.scheme = sha1RSASSA }},
		{Name: "signature-of-another-kind-of-key", live: "-", What: "An RSA signature stands behind the statement of an AK on P-256.", Expect: "signature-scheme",
			Change: func(f *Forgery) {
				f.after = func(e *statement.CertifyEvidence) {
					e.Signature = Must(f.w.AKRSA.sign(schemeRSASSA, e.Attest).Marshal())
				}
			}},
		{Name: "signature-is-an-hmac", What: "The signature is a TPMT_SIGNATURE with an HMAC.", Expect: "signature-scheme",
			Change: after(func(e *statement.CertifyEvidence) { e.Signature = append([]byte{0, 5, 0, 0x0b}, make([]byte, 32)...) })},
		{Name: "signature-raw", What: "A bare RSA signature stands where a TPMT_SIGNATURE belongs.", Expect: "signature-scheme", RSA: true,
			Change: after(func(e *statement.CertifyEvidence) { e.Signature = e.Signature[6:] })},
	}
}
