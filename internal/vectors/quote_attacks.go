package main

import (
	"bytes"
	"crypto/sha512"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/vector"
)

func patchQuote(how func([]byte) []byte) func(*world, *quoting) {
	return func(_ *world, q *quoting) { q.patch = how }
}

func onQuote(how func(*quoting)) func(*world, *quoting) {
	return func(_ *world, q *quoting) { how(q) }
}

// afterQuote changes what the caller holds the quote against.
func afterQuote(how func(*vector.Quote)) func(*world, *quoting) {
	return func(_ *world, q *quoting) { q.after = how }
}

// quotedStatements are about the TPMS_ATTEST and its qualifying data.
func quotedStatements() []quoteAttack {
	return []quoteAttack{
		{name: "forged-magic", what: "The structure does not begin with TPM_GENERATED_VALUE.", expect: "attest-magic",
			change: patchQuote(func(b []byte) []byte { b[0] ^= 1; return b })},
		{name: "with-bytes-behind", what: "A byte stands behind the TPMS_ATTEST, under the signature.", expect: "attest-encoding",
			change: patchQuote(func(b []byte) []byte { return append(b, 0) })},
		{name: "truncated", what: "The TPMS_ATTEST lacks its last byte, under the signature.", expect: "attest-encoding",
			change: patchQuote(func(b []byte) []byte { return b[:len(b)-1] })},
		{name: "is-a-certify-statement", what: "A certify statement with the right qualifying data stands in place of the quote.", expect: "attest-type",
			change: onQuote(func(q *quoting) {
				q.attest.Type, q.attest.Quote = tpm2.TPMSTAttestCertify, nil
				q.tpm.Certified = &tpm.CertifyInfo{Name: q.ak.public.Name(), QualifiedName: q.ak.public.Name()}
			})},
		{name: "is-a-command-audit", what: "The type says command audit over the bytes of a quote.", expect: "attest-type",
			change: patchQuote(func(b []byte) []byte { b[4], b[5] = 0x80, 0x15; return b })},
		{name: "clock-safe-flag-not-boolean", what: "The clock's safe flag is 2, which is no TPMI_YES_NO.", expect: "attest-encoding",
			change: onQuote(func(q *quoting) {
				q.patch = func(b []byte) []byte { b[6+2+len(q.attest.QualifiedSigner)+2+len(q.attest.ExtraData)+16] = 2; return b }
			})},
		{name: "without-qualifying-data", what: "The quote has no qualifying data.", expect: "qualifying-data",
			change: onQuote(func(q *quoting) { q.attest.ExtraData = nil })},
		{name: "with-a-prefix-of-the-qualifying-data", what: "The quote has the first bytes of the qualifying data.", expect: "qualifying-data",
			change: onQuote(func(q *quoting) { q.attest.ExtraData = quotedData[:31] })},
		{name: "with-other-qualifying-data", what: "The quote is for another challenge.", expect: "qualifying-data",
			change: onQuote(func(q *quoting) { q.attest.ExtraData = derive("other qualifying data", 32) })},
		{name: "clock-changed", what: "One bit of the clock was changed behind the signature.", expect: "signature",
			change: afterQuote(func(v *vector.Quote) { v.Attest[len(v.Attest)-1-clockBehind] ^= 1 })},
		{name: "for-a-caller-without-an-ak", what: "The caller names no AK.", expect: "quote-options",
			change: afterQuote(func(v *vector.Quote) { v.AKPublic = nil })},
		{name: "for-a-caller-without-qualifying-data", what: "The caller gives no qualifying data.", expect: "quote-options",
			change: afterQuote(func(v *vector.Quote) { v.QualifyingData = nil })},
		{name: "for-a-caller-of-two-minds", what: "The caller gives qualifying data and allows any.", expect: "quote-options",
			change: afterQuote(func(v *vector.Quote) { v.Options = []string{"insecureAllowAnyQualifyingData"} })},
	}
}

// clockBehind is what stands behind the low byte of restartCount: the safe flag, the
// firmware version, one selection of three octets and a digest of SHA-256.
const clockBehind = 1 + 8 + 4 + 2 + 1 + 3 + 2 + 32

// quotedSelections are about which PCRs the quote covers.
func quotedSelections() []quoteAttack {
	selects := func(selections ...vector.PCRSelection) func(*world, *quoting) {
		return onQuote(func(q *quoting) { q.selectPCRs(selections...) })
	}
	asks := func(p vector.PCR) func(*world, *quoting) {
		return onQuote(func(q *quoting) {
			q.selectPCRs(selectionOf(bankSHA256, 1, 0, 0x81))
			q.after = func(v *vector.Quote) { v.Asked = &p }
		})
	}
	return []quoteAttack{
		{name: "of-no-bank", what: "The quote selects no bank.", expect: "pcr-selection", change: selects()},
		{name: "of-no-pcr", what: "The quote selects a bank, and no PCR of it.", expect: "pcr-selection", change: selects(selectionOf(bankSHA256, 0, 0, 0))},
		{name: "of-no-pcr-of-a-second-bank", what: "The quote selects no PCR of its second bank.", expect: "pcr-selection",
			change: selects(selectionOf(bankSHA256, 0xff, 0, 0), selectionOf(bankSHA384, 0, 0, 0))},
		{name: "of-one-bank-twice", what: "The quote lists one bank twice, with a PCR each.", expect: "pcr-selection",
			change: selects(selectionOf(bankSHA256, 1, 0, 0), selectionOf(bankSHA256, 2, 0, 0))},
		{name: "of-the-sha1-bank", what: "The quote is over a PCR of the SHA-1 bank, for which collisions can be computed.", expect: "pcr-bank",
			change: selects(selectionOf(bankSHA1, 1, 0, 0))},
		{name: "of-an-unknown-bank", what: "The quote says that it is over the bank of another hash, SM3.", expect: "pcr-bank",
			change: onQuote(func(q *quoting) { q.attest.Quote.Selections[0].Hash = tpm2.TPMAlgSM3256 })},
		{name: "of-five-octets", what: "The selection has five octets, more than any TPM's.", expect: "attest-encoding", change: selects(selectionOf(bankSHA256, 1, 0, 0, 0, 0))},
		{name: "of-fewer-pcrs-than-asked", what: "The caller asks for PCR 8 too, which the node did not have quoted.", expect: "pcr-selection",
			change: afterQuote(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{selectionOf(bankSHA256, 0xff, 1, 0)} })},
		{name: "of-more-pcrs-than-asked", what: "The caller asks for PCR 7 alone.", expect: "pcr-selection",
			change: afterQuote(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{selectionOf(bankSHA256, 0x80, 0, 0)} })},
		{name: "of-another-bank-than-asked", what: "The caller asks for the same PCRs of the SHA-384 bank.", expect: "pcr-selection",
			change: afterQuote(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{selectionOf(bankSHA384, 0xff, 0, 0)} })},
		{name: "for-a-caller-who-asks-for-nothing", what: "The caller asks for no PCR at all, which every quote would fulfil.", expect: "pcr-selection",
			change: afterQuote(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{} })},
		{name: "asked-for-a-pcr-outside", what: "The caller asks for the value of a PCR that was not quoted.", expect: "pcr-not-quoted", change: asks(vector.PCR{Bank: bankSHA256, Index: 1})},
		{name: "asked-for-another-bank", what: "The caller asks for the value of a quoted PCR in another bank.", expect: "pcr-not-quoted", change: asks(vector.PCR{Bank: bankSHA384})},
		{name: "asked-for-pcr-16", what: "The caller asks for PCR 16, which any program can reset.", expect: "pcr-resettable", change: asks(vector.PCR{Bank: bankSHA256, Index: 16})},
		{name: "asked-for-pcr-23", what: "The caller asks for PCR 23, which any program can reset.", expect: "pcr-resettable", change: asks(vector.PCR{Bank: bankSHA256, Index: 23})},
	}
}

// quotedValues are about the values that the node sends beside the quote.
func quotedValues() []quoteAttack {
	return []quoteAttack{
		{name: "pcr-listed-twice", what: "The node lists PCR 7 with a value that it wishes for, and again with the quoted one.", expect: "pcr-duplicate",
			change: onQuote(func(q *quoting) {
				q.pcrs = append([]vector.PCR{{Bank: bankSHA256, Index: 7, Value: make([]byte, 32)}}, q.pcrs...)
			})},
		{name: "pcr-listed-twice-alike", what: "The node lists PCR 0 twice with the quoted value.", expect: "pcr-duplicate",
			change: onQuote(func(q *quoting) { q.pcrs = append(q.pcrs, q.pcrs[0]) })},
		{name: "pcr-outside-the-selection", what: "The node sends a value of PCR 8, which was not quoted.", expect: "pcr-not-quoted",
			change: onQuote(func(q *quoting) { q.pcrs = append(q.pcrs, pcr(bankSHA256, 8)) })},
		{name: "pcr-of-another-bank", what: "The node sends a value of PCR 0 in a bank that was not quoted.", expect: "pcr-not-quoted",
			change: onQuote(func(q *quoting) { q.pcrs = append(q.pcrs, pcr(bankSHA384, 0)) })},
		{name: "pcr-of-the-wrong-bank", what: "The node says of a quoted value that it is of the SHA-384 bank.", expect: "pcr-value",
			change: onQuote(func(q *quoting) { q.pcrs[0].Bank = bankSHA384 })},
		{name: "pcr-of-an-unknown-bank", what: "The node sends a value of a bank of SM3.", expect: "pcr-bank",
			change: onQuote(func(q *quoting) { q.pcrs[0].Bank = bankSM3 })},
		{name: "pcr-32", what: "The node sends a value of PCR 32, which no selection can name.", expect: "pcr-selection",
			change: onQuote(func(q *quoting) { q.pcrs[0].Index = 32 })},
		{name: "pcr-missing", what: "The node leaves out the value of PCR 0.", expect: "pcr-missing", change: onQuote(func(q *quoting) { q.pcrs = q.pcrs[1:] })},
		{name: "pcrs-missing", what: "The node sends no values.", expect: "pcr-missing", change: onQuote(func(q *quoting) { q.pcrs = []vector.PCR{} })},
		{name: "pcr-value-one-bit-off", what: "One bit of the value of PCR 3 was changed.", expect: "pcr-digest", change: onQuote(func(q *quoting) { q.pcrs[3].Value[31] ^= 1 })},
		{name: "pcr-values-swapped", what: "The values of PCRs 0 and 1 were swapped.", expect: "pcr-digest",
			change: onQuote(func(q *quoting) { q.pcrs[0].Value, q.pcrs[1].Value = q.pcrs[1].Value, q.pcrs[0].Value })},
		{name: "pcr-value-moved", what: "The last byte of PCR 0 moved to the front of PCR 1, which changes no digest.", expect: "pcr-value",
			change: onQuote(func(q *quoting) {
				q.pcrs[1].Value = append([]byte{q.pcrs[0].Value[31]}, q.pcrs[1].Value...)
				q.pcrs[0].Value = q.pcrs[0].Value[:31]
			})},
		{name: "pcr-digest-changed", what: "The quoted digest is that of other values.", expect: "pcr-digest",
			change: onQuote(func(q *quoting) { q.attest.Quote.PCRDigest[0] ^= 1 })},
		{name: "pcr-digest-under-another-hash", what: "The quoted digest is SHA-384, the AK's hash is SHA-256.", expect: "pcr-digest",
			change: onQuote(func(q *quoting) {
				var all []byte
				for _, p := range q.pcrs {
					all = append(all, p.Value...)
				}
				sum := sha512.Sum384(all)
				q.attest.Quote.PCRDigest = sum[:]
			})},
		{name: "pcr-digest-absent", what: "The quote has no digest.", expect: "pcr-digest", change: onQuote(func(q *quoting) { q.attest.Quote.PCRDigest = nil })},
	}
}

// quotedSigners are about the AK and its signature.
func quotedSigners() []quoteAttack {
	ak := func(how func(*tpm.Public)) func(*world, *quoting) {
		return onQuote(func(q *quoting) { q.useAK(changed(q.ak.public, how)) })
	}
	signature := func(how func(*tpm.Signature)) func(*world, *quoting) {
		return onQuote(func(q *quoting) { q.signature = how })
	}
	return []quoteAttack{
		{name: "by-another-ak", what: "Another AK signs under the public area of the one that is named.", expect: "signature",
			change: func(w *world, q *quoting) { q.ak = &softAK{private: w.akOther.private, public: q.ak.public} }},
		{name: "by-an-ak-that-decrypts", what: "The AK can decrypt too.", expect: "ak-attributes", change: ak(func(p *tpm.Public) { p.Attributes |= tpm.AttributeDecrypt })},
		{name: "by-an-ak-that-is-not-restricted", what: "The AK is not restricted, so it signs anything.", expect: "ak-attributes",
			change: ak(func(p *tpm.Public) { p.Attributes &^= tpm.AttributeRestricted })},
		{name: "by-an-ak-without-a-scheme", what: "The AK has no scheme of its own.", expect: "ak-scheme", change: ak(func(p *tpm.Public) { p.Scheme = noScheme })},
		{name: "by-an-ak-under-a-sha1-name", what: "The AK's Name is a SHA-1 digest.", expect: "name-algorithm", change: ak(func(p *tpm.Public) { p.NameAlg = tpm2.TPMAlgSHA1 })},
		{name: "by-a-key-from-outside", what: "The qualified signer is the AK's bare Name: a key that was loaded from outside.", expect: "qualified-signer",
			change: onQuote(func(q *quoting) { q.attest.QualifiedSigner = q.ak.public.Name() })},
		{name: "by-nobody", what: "The qualified signer is empty.", expect: "qualified-signer", change: onQuote(func(q *quoting) { q.attest.QualifiedSigner = nil })},
		{name: "signed-with-sha1", what: "The AK's own scheme, the signature and the digest are over SHA-1.", expect: "signature-hash", rsa: true, change: onQuote(sha1AK)},
		{name: "signed-with-another-hash", what: "The quote is signed with SHA-384, the AK's own hash is SHA-256.", expect: "signature-scheme",
			change: onQuote(func(q *quoting) { q.scheme.Hash = tpm2.TPMAlgSHA384; q.digest() })},
		{name: "signed-with-r-zero", what: "The ECDSA signature has r = 0.", expect: "signature-range", change: signature(func(v *tpm.Signature) { v.R = []byte{0} })},
		{name: "signed-with-s-over-the-order", what: "The ECDSA signature has an s of all ones.", expect: "signature-range",
			change: signature(func(v *tpm.Signature) { v.S = bytes.Repeat([]byte{0xff}, 32) })},
		{name: "signature-bit-flipped", what: "One bit of the signature was changed.", expect: "signature", rsa: true, change: signature(func(v *tpm.Signature) { v.RSA[100] ^= 1 })},
		{name: "signature-truncated", what: "The RSA signature lacks its last byte, its size says so.", expect: "signature-length", rsa: true,
			change: signature(func(v *tpm.Signature) { v.RSA = v.RSA[:len(v.RSA)-1] })},
		{name: "signature-with-bytes-behind", what: "A byte stands behind the TPMT_SIGNATURE.", expect: "signature-encoding",
			change: afterQuote(func(v *vector.Quote) { v.Signature = append(v.Signature, 0) })},
	}
}
