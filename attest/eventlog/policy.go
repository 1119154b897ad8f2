package eventlog

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
)

// Policy is an [attest.QuotePolicy] over event logs. Whatever it asks for, the log must
// explain the quote: see [Replay]. The zero value asks for nothing, and refuses.
type Policy struct {
	// RequireSecureBoot refuses machines whose log does not show that Secure Boot is
	// on: see [Log.SecureBoot].
	RequireSecureBoot bool
	// Predicate decides about the replayed log; nil leaves that out. It reads events
	// through [Log.EventsOf], which refuses what the quote does not cover, and their
	// data through [Event.Data].
	Predicate func(ctx context.Context, l *Log) error
	// Options are those of [Replay].
	Options Options
}

// CheckQuote replays the log of m and asks what the policy asks. A refusal is an
// [*attest.Error], or what Predicate returned.
func (p *Policy) CheckQuote(ctx context.Context, m *attest.Measured) error {
	if p == nil || !p.RequireSecureBoot && p.Predicate == nil {
		return refuse(attest.CheckQuotePolicy, "nothing asked", "RequireSecureBoot or a Predicate")
	}
	l, err := Replay(m.EventLog, m.Quote, &p.Options)
	if err != nil {
		return err
	}
	if p.RequireSecureBoot {
		state, err := l.SecureBoot()
		if err != nil {
			return err
		}
		if !state.Enabled {
			return refuse(CheckSecureBoot, "Secure Boot is off", "on")
		}
	}
	if p.Predicate == nil {
		return nil
	}
	return p.Predicate(ctx, l)
}
