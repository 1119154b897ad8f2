package forge

import (
	"bytes"
	"math/big"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

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
			Change: func(f *Forgery) { f.useAK(offCurve(f.AK.Public)) }},
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
	rs := func(how func(*statement.Signature)) func(*Forgery) {
		return func(f *Forgery) { f.Signature = how }
	}
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
