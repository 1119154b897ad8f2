package attesttest

import (
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
)

// quoteAttacks are about the quote, in a world whose policy asks for one over good
// values of PCRs 0 to 7.
func quoteAttacks() []Attack {
	quote := func(name, what string, change func(*quoteForgery)) Attack {
		return statement(name, what, func(f *forgery) { change(f.quote) })
	}
	return append(quotedValueAttacks(),
		statement("quote-missing", "There is no quote.", func(f *forgery) { f.quote = nil }),
		statement("two-quotes", "There are two quotes.", func(f *forgery) {
			f.evidence = func(b *attest.AttestationBundle) { b.Statements = append(b.Statements, b.Statements[2]) }
		}),
		statement("quote-by-another-ak", "Another machine's AK signed the quote.", func(f *forgery) { f.quote.signer = f.world.machines[MachineTwo] }),
		statement("quote-is-the-certify-statement", "The certify statement stands in place of the quote too.", func(f *forgery) {
			again := *f.attest
			q := *f.quote.attest
			q.Type, q.Quote, q.Certified = again.Type, nil, again.Certified
			f.quote.attest = &q
		}),
		quote("quote-forged-magic", "The AK signed a quote that no TPM made.", func(q *quoteForgery) {
			q.patch = func(b []byte) []byte { b[3] ^= 1; return b }
		}),
		quote("quote-qualifying-data-absent", "The quote has no qualifying data, so it may be of any time.", func(q *quoteForgery) { q.attest.ExtraData = nil }),
		quote("quote-qualifying-data-other", "The quote was made for another challenge.", func(q *quoteForgery) { q.attest.ExtraData = make([]byte, 32) }),
		statement("quote-qualifying-data-of-certify", "The quote has the qualifying data of the certify statement.", func(f *forgery) {
			f.quote.attest.ExtraData = f.attest.ExtraData
		}),
		quote("quote-of-another-boot", "The machine was restarted between certify statement and quote.", func(q *quoteForgery) { q.attest.ResetCount++ }),
		quote("quote-signature-sha1", "The quote is signed with SHA-1.", func(q *quoteForgery) { q.hash = tpm2.TPMAlgSHA1 }),
		quote("quote-signature-truncated", "The quote's signature lacks its last byte.", func(q *quoteForgery) {
			q.signature = func(b []byte) []byte { return b[:len(b)-1] }
		}),
	)
}

// quotedValueAttacks are machines that booted something else, or do not show what
// they booted.
func quotedValueAttacks() []Attack {
	const half = bootPCRs / 2 // PCR 4, the changed one, is outside
	quote := func(name, what string, change func(*quoteForgery)) Attack {
		return statement(name, what, func(f *forgery) { change(f.quote) })
	}
	return []Attack{
		quote("quote-values-not-accepted", "The machine booted something else, and says so.", func(q *quoteForgery) {
			q.pcrs = badBoot()
			q.measure(bootPCRs, q.pcrs)
		}),
		quote("quote-value-changed", "The machine booted something else; a good value stands in place of the quoted one.", func(q *quoteForgery) {
			q.measure(bootPCRs, badBoot())
		}),
		quote("quote-value-outside-the-selection", "The quote leaves the changed PCR out; a good value of it stands beside the quote.", func(q *quoteForgery) {
			q.measure(half, q.pcrs)
		}),
		quote("quote-of-nothing", "The quote selects no PCR; good values stand beside it.", func(q *quoteForgery) { q.measure(0, q.pcrs) }),
		quote("quote-without-a-needed-pcr", "The quote, and what stands beside it, leave the changed PCR out.", func(q *quoteForgery) {
			q.measure(half, q.pcrs)
			q.pcrs = q.pcrs[:half]
		}),
		quote("quote-value-missing", "The value of a quoted PCR is not given.", func(q *quoteForgery) { q.pcrs = slices.Delete(q.pcrs, 4, 5) }),
		quote("quote-value-twice-good-last", "One PCR is listed twice: the quoted value, and behind it a good one.", func(q *quoteForgery) {
			q.measure(bootPCRs, badBoot())
			q.pcrs = slices.Insert(q.pcrs, 4, badBoot()[4])
		}),
		quote("quote-value-twice-good-first", "One PCR is listed twice: a good value, and behind it the quoted one.", func(q *quoteForgery) {
			q.measure(bootPCRs, badBoot())
			q.pcrs = slices.Insert(q.pcrs, 5, badBoot()[4])
		}),
	}
}
