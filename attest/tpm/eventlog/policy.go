package eventlog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkUnextended: nothing was measured into a PCR of the bank that the policy names, so the
// firmware does not serve that bank and anyone who is root could fill it in.
const checkUnextended refusal.Check = "event-log-unextended"

// BootPolicy is a [tpm.QuotePolicy] over event logs. Whatever it asks for, the log must explain
// the quote: see [Replay]. The zero value asks for nothing, and refuses.
//
// The policy, not the node, says which bank and which PCRs decide: a TPM has banks that the
// firmware may not extend, and into such a bank root can measure the boot of its choice
// (CVE-2021-42299). It is for you to know that the firmware of your machines extends Bank; a
// bank that has not been extended yet is refused.
type BootPolicy struct {
	// Bank is the bank that decides. Zero is SHA-256; the others are tpm2.TPMAlgSHA384
	// and tpm2.TPMAlgSHA512.
	Bank tpm2.TPMAlgID
	// PCRs are the PCRs of Bank, 0 to 23, that the quote must cover, the log must explain and
	// something must have been measured into. Nil means 0 to 7, into each of which firmware
	// measures at least a separator (TCG PC Client Platform Firmware Profile 1.06, 3.3.4). PCR
	// 7 must be among them for RequireSecureBoot.
	PCRs []int
	// RequireSecureBoot refuses machines whose log does not show that Secure Boot is on, in
	// Bank: see [Log.SecureBoot].
	RequireSecureBoot bool
	// Predicate decides about the replayed log; nil leaves that out. It reads events through
	// [Log.EventsOf], which refuses a PCR that the quote does not cover, and their data through
	// [Event.Data].
	Predicate func(ctx context.Context, l *Log) error
	// Options are passed to [Replay].
	Options Options
}

// CheckQuote replays the log of m and checks the policy's requirements. A refusal is a
// [*refusal.Error], or Predicate's error.
func (p *BootPolicy) CheckQuote(ctx context.Context, m *tpm.Measured) error {
	bank, pcrs, err := p.wanted()
	if err != nil {
		return err
	}
	m = cmp.Or(m, new(tpm.Measured))
	l, err := Replay(m.EventLog, m.Quote, &p.Options)
	if err != nil {
		return err
	}
	for _, index := range pcrs {
		events, err := l.EventsOf(bank, index)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return checkUnextended.Refuse(fmt.Sprintf("nothing measured into PCR %d of the bank of %s", index, tpmwire.HashOf(bank)),
				"what firmware measures")
		}
	}
	if p.RequireSecureBoot {
		state, err := l.SecureBoot(bank)
		if err != nil {
			return err
		}
		if !state.Enabled {
			return CheckSecureBoot.Refuse("Secure Boot is off", "on")
		}
	}
	if p.Predicate == nil {
		return nil
	}
	return p.Predicate(ctx, l)
}

// Validate returns an error with [tpm.CheckQuotePolicy] for a policy that no machine can meet: CheckQuote
// would return the same error for every machine.
func (p *BootPolicy) Validate() error {
	_, _, err := p.wanted()
	return err
}

// unusable is the error about a policy, which is no fault of a machine's.
func unusable(got, want string) error {
	return &refusal.Error{Check: tpm.CheckQuotePolicy, Got: got, Want: want, Err: refusal.ErrRetry}
}

// wanted returns the bank and the PCRs that decide.
func (p *BootPolicy) wanted() (tpm2.TPMAlgID, []int, error) {
	if p == nil || !p.RequireSecureBoot && p.Predicate == nil {
		return 0, nil, unusable("nothing asked", "RequireSecureBoot or a Predicate")
	}
	bank, pcrs := cmp.Or(p.Bank, tpm2.TPMAlgSHA256), p.PCRs
	if pcrs == nil {
		pcrs = []int{0, 1, 2, 3, 4, 5, 6, secureBootPCR}
	}
	switch {
	case !slices.Contains([]tpm2.TPMAlgID{tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384, tpm2.TPMAlgSHA512}, bank):
		return 0, nil, unusable(fmt.Sprintf("bank %#x", uint16(bank)), "SHA-256, SHA-384 or SHA-512")
	case len(pcrs) == 0:
		return 0, nil, unusable("no PCRs", "at least one, or nil for 0 to 7")
	case p.RequireSecureBoot && !slices.Contains(pcrs, secureBootPCR):
		return 0, nil, unusable(fmt.Sprintf("RequireSecureBoot with PCRs %v", pcrs), "PCR 7 among them")
	}
	return bank, pcrs, nil
}
