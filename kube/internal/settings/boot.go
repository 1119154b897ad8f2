package settings

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/eventlog"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
)

// The values of tpm.secureBoot. Without one, no event log is read.
const (
	secureBootRequire = "require" // refuses a machine whose log does not show that Secure Boot is on
	secureBootObserve = "observe" // judges the same, and refuses no machine
)

// SecureBootState is the state of Secure Boot according to an event log.
type SecureBootState string

// The states of Secure Boot.
const (
	SecureBootOn      SecureBootState = "On"
	SecureBootOff     SecureBootState = "Off"
	SecureBootUnknown SecureBootState = "Unknown" // no log, or one that does not explain the quote
)

// Boot is a machine's boot, as the quote and the event log of one answer show it.
type Boot struct {
	// Judged is false if the answer never got as far, or if there was neither a quote nor anything to
	// judge: then all other fields are empty.
	Judged bool
	// Machine is the identity of the machine whose TPM made the quote.
	Machine attest.Identity
	// PCRs are the quoted values of the SHA-256 bank, by index.
	PCRs []statement.PCR
	// SecureBoot is empty without tpm.secureBoot.
	SecureBoot SecureBootState
	// GoodPCRs is the index of the first set of tpm.goodPCRs that the quote has; -1: of none, or there
	// are no sets.
	GoodPCRs int
	// Wrong are the refusals of the policies, at most two, with secureBoot: observe
	// also the reasons by which it refuses no machine.
	Wrong []error
}

type bootKey struct{}

// CollectBoot returns a context in which a verification fills in the boot of the machine, whether it
// succeeds or not. Both belong to one request.
func CollectBoot(ctx context.Context) (context.Context, *Boot) {
	b := new(Boot)
	return context.WithValue(ctx, bootKey{}, b), b
}

// bootPolicy decides about what machines booted, as the section tpm says: by goodPCRs, and by secureBoot.
type bootPolicy struct {
	all        *tpm.PCRPolicy // nil: any values
	sets       []*tpm.PCRPolicy
	secureBoot string
}

// CheckQuote judges a quote and its log by every policy. It keeps the result in the context's [Boot].
func (p *bootPolicy) CheckQuote(ctx context.Context, m *tpm.Measured) error {
	boot, collected := ctx.Value(bootKey{}).(*Boot)
	if !collected {
		boot = new(Boot)
	}
	*boot = Boot{Judged: m.Quote != nil || p.all != nil || p.secureBoot != "", Machine: m.Machine, GoodPCRs: -1}
	if m.Quote != nil {
		for _, pcr := range m.Quote.PCRs() {
			if pcr.Bank == tpm2.TPMAlgSHA256 {
				boot.PCRs = append(boot.PCRs, pcr)
			}
		}
	}
	values := p.checkValues(ctx, m, boot)
	state := p.checkSecureBoot(ctx, m, boot)
	if values != nil && state != nil && m.Quote == nil {
		state = nil // one quote is missing, not two
	}
	for _, err := range []error{values, state} {
		if err != nil {
			boot.Wrong = append(boot.Wrong, err)
		}
	}
	if p.secureBoot == secureBootObserve {
		return values
	}
	return cmp.Or(values, state)
}

// checkValues holds the quoted values against the sets.
func (p *bootPolicy) checkValues(ctx context.Context, m *tpm.Measured, boot *Boot) error {
	if p.all == nil {
		return nil
	}
	if m.Quote == nil {
		return noQuote()
	}
	for n, set := range p.sets {
		if set.CheckQuote(ctx, m) == nil {
			boot.GoodPCRs = n
			return nil
		}
	}
	return p.all.CheckQuote(ctx, m)
}

// checkSecureBoot reads the state of Secure Boot from the log.
func (p *bootPolicy) checkSecureBoot(ctx context.Context, m *tpm.Measured, boot *Boot) error {
	if p.secureBoot == "" {
		return nil
	}
	boot.SecureBoot = SecureBootUnknown
	if m.Quote == nil {
		return noQuote()
	}
	policy := &eventlog.BootPolicy{Options: eventlog.Options{AllowMissingExitBootServices: true}, Predicate: func(_ context.Context, l *eventlog.Log) error {
		state, err := l.SecureBoot(tpm2.TPMAlgSHA256)
		switch {
		case err != nil:
			return err
		case !state.Enabled:
			boot.SecureBoot = SecureBootOff
			return eventlog.CheckSecureBoot.Refuse("Secure Boot off", "on: turn it on in the firmware settings of the machine and boot it again, and its node joins")
		}
		boot.SecureBoot = SecureBootOn
		return nil
	}}
	err := policy.CheckQuote(ctx, m)
	if errors.Is(err, eventlog.CheckMissing) {
		return eventlog.CheckMissing.Refuse("a quote without an event log", "both: in kubelet-authenticator.yaml of the node set evidence.tpm.eventLog, such as /sys/kernel/security/tpm0/binary_bios_measurements")
	}
	return err
}

func noQuote() error {
	return tpm.CheckQuoteMissing.Refuse("an answer without a quote", "one with a quote: in kubelet-authenticator.yaml of the node set quote: true in evidence.tpm, and eventLog for Secure Boot")
}

// bootPolicy makes the policy of the section.
func (t *TPM) bootPolicy() (*bootPolicy, error) {
	p := &bootPolicy{secureBoot: t.SecureBoot}
	if len(t.GoodPCRs) == 0 {
		return p, nil
	}
	sets, err := pcrSets(t.GoodPCRs)
	if err != nil {
		return nil, err
	}
	if p.all, err = tpm.NewPCRPolicy(sets...); err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "unusable goodPCRs", Err: err}
	}
	for _, set := range sets {
		one, err := tpm.NewPCRPolicy(set)
		if err != nil {
			return nil, err
		}
		p.sets = append(p.sets, one)
	}
	return p, nil
}

// pcrSets reads sets of values of the SHA-256 bank.
func pcrSets(goodPCRs []map[int]string) ([][]statement.PCR, error) {
	values, err := pcrValues(goodPCRs)
	if err != nil {
		return nil, err
	}
	sets := make([][]statement.PCR, len(values))
	for i, set := range values {
		for index, value := range set {
			sets[i] = append(sets[i], statement.PCR{Bank: tpm2.TPMAlgSHA256, Index: index, Value: value})
		}
	}
	return sets, nil
}

// CheckGoodPCRs returns the error with which the programs refuse to start with these sets as tpm.goodPCRs. No
// sets are an error here.
func CheckGoodPCRs(goodPCRs []map[int]string) error {
	sets, err := pcrSets(goodPCRs)
	if err != nil {
		return err
	}
	_, err = tpm.NewPCRPolicy(sets...)
	return err
}
