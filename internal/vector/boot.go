package vector

import (
	"context"

	"github.com/nodeattest/nodeattest/attest/tpm"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/eventlog"
)

// Boot is a quote, the firmware's event log beside it, and what both are held against:
// Secure Boot must be on.
type Boot struct {
	// Quote is verified first, as for LevelQuote.
	Quote Quote `json:"quote"`
	// EventLog is a log of the TCG PC Client Platform Firmware Profile 1.06, 10.
	EventLog []byte `json:"eventLog,omitempty"`
	// Bank is the number of the hash of the bank that decides, absent for SHA-256; PCRs
	// are those that must be covered, explained and measured into, absent for 0 to 7.
	Bank tpm2.TPMAlgID `json:"bank,omitempty"`
	PCRs []int         `json:"pcrs,omitempty"`
	// Unexplained are PCRs that the log need not explain.
	Unexplained []int `json:"unexplained,omitempty"`
}

// judge gives quote and log to an eventlog.Policy.
func (b *Boot) judge(ctx context.Context) error {
	quoted, _, err := b.Quote.verified()
	if err != nil {
		return err
	}
	policy := &eventlog.Policy{Bank: b.Bank, PCRs: b.PCRs, RequireSecureBoot: true,
		Options: eventlog.Options{Unexplained: b.Unexplained}}
	return policy.CheckQuote(ctx, &tpm.Measured{Quote: quoted, EventLog: b.EventLog})
}
