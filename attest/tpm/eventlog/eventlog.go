package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	tcg "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of an event log. Refusals are a [*refusal.Error] with one of them.
const (
	// CheckMissing: a log is needed and none was sent.
	CheckMissing refusal.Check = "event-log-missing"
	// checkEncoding: the log is not in the format of the TCG PC Client Platform Firmware
	// Profile, or is larger than [statement.MaxEventLogSize].
	checkEncoding refusal.Check = "event-log-encoding"
	// checkReplay: the log does not explain the value of a quoted PCR.
	checkReplay refusal.Check = "event-log-replay"
	// checkUncovered: the quote covers no PCR that could be replayed, or not the one asked
	// for.
	checkUncovered refusal.Check = "event-log-uncovered"
	// checkEventData: an event's digest is not that of its data, so nothing vouches for the
	// data.
	checkEventData refusal.Check = "event-data"
)

// Options are the optional inputs of [Replay]; nil is the zero value, the strictest.
type Options struct {
	// Unexplained are quoted PCRs, 0 to 23, that the firmware's log cannot explain because the
	// system measures into them after boot: 10 under Linux's IMA, 8, 9 and 11 to 15 under some
	// boot loaders. They are not replayed, and the result has no events for them.
	Unexplained []int
	// AllowMissingExitBootServices accepts logs that were read before the last events of PCR
	// 5: if adding the events of ExitBootServices explains PCR 5, they are added. Some
	// firmware never logs them.
	AllowMissingExitBootServices bool
}

// unexplainedHint ends the refusals of PCRs that the log does not explain.
const unexplainedHint = "; PCRs that the system extends after boot (10 under Linux' IMA) belong into Options.Unexplained"

// Type is an event's type, as stated by the log: TCG PC Client Platform Firmware Profile 1.06,
// 10.4.1. No digest covers it.
type Type uint32

// String returns the profile's word, for example "EV_SEPARATOR".
func (t Type) String() string { return tcg.EventType(t).String() }

// Event is one measurement, of which the quote proves PCR, Bank, Digest and the place among
// the events of its PCR.
type Event struct {
	// PCR is the index of the register, 0 to 31, and Bank its hash.
	PCR  int
	Bank tpm2.TPMAlgID
	// Digest is what was extended, 20 to 64 bytes.
	Digest []byte
	// UntrustedType is what the log says. Whoever wrote the log could have written a different
	// one: it means something only together with data from [Event.Data].
	UntrustedType Type
	// UntrustedData is also only what the log says: see [Event.Data].
	UntrustedData []byte
}

// Data returns the event's data if its digest is that of the data, otherwise a
// [*refusal.Error] with the check "event-data". It is an error for many honest events: for a
// program, what is measured is its digest, and the data say where it was.
func (e *Event) Data() ([]byte, error) {
	e = typednil.OrZero(e)
	if sum := digest(e.Bank, e.UntrustedData); sum == nil || !bytes.Equal(sum, e.Digest) {
		return nil, &refusal.Error{Check: checkEventData,
			Got:  fmt.Sprintf("a digest %x of something else", e.Digest),
			Want: fmt.Sprintf("%x of the data of %s in PCR %d", sum, e.UntrustedType, e.PCR)}
	}
	return e.UntrustedData, nil
}

// Log is a log that explains a quote. Only [Replay] makes one.
type Log struct {
	events []Event
	quoted *statement.Quoted
}

// Events returns the replayed events in the order of the log, bank by bank: only those of
// quoted PCRs, and none of those that extend nothing.
func (l *Log) Events() []Event { return slices.Clone(l.events) }

// EventsOf returns the replayed events of one PCR in one bank, in order. If the quote does not
// cover the PCR or its value was not replayed, that is a [*refusal.Error]; no events and no
// error means that nothing was measured.
func (l *Log) EventsOf(bank tpm2.TPMAlgID, index int) ([]Event, error) {
	if l == nil || l.quoted == nil {
		return nil, tpmwire.Refuse(checkUncovered, "no replayed log", "one of Replay")
	}
	value, err := l.quoted.Value(bank, index)
	if err != nil {
		return nil, err
	}
	events := slices.DeleteFunc(l.Events(), func(e Event) bool { return e.Bank != bank || e.PCR != index })
	if !explains(events, bank, index, value) {
		return nil, tpmwire.Refuse(checkUncovered, "PCR "+strconv.Itoa(index)+", which was not replayed", "one that Replay explains")
	}
	return events, nil
}

// Replay checks a log against a verified quote. It returns a [*refusal.Error] unless the log
// explains the value of every quoted PCR in every quoted bank, except those that any program
// can reset and those in opts.Unexplained; opts may be nil. A PCR without events must have the
// value that a reset gives it.
func Replay(log []byte, q *statement.Quoted, opts *Options) (*Log, error) {
	if len(log) == 0 {
		return nil, tpmwire.Refuse(CheckMissing, "", "an event log")
	}
	if len(log) > statement.MaxEventLogSize {
		return nil, tpmwire.Refuse(checkEncoding, strconv.Itoa(len(log))+" bytes", "at most "+strconv.Itoa(statement.MaxEventLogSize))
	}
	banks, err := replayable(q, opts)
	if err != nil {
		return nil, err
	}
	parsed, err := guarded(tcg.ParseEventLog, log)
	if err != nil {
		return nil, &refusal.Error{Check: checkEncoding, Err: err}
	}
	l := &Log{quoted: q}
	for _, pcrs := range banks {
		events, err := replayBank(parsed, pcrs, opts)
		if err != nil {
			return nil, err
		}
		l.events = append(l.events, events...)
	}
	return l, nil
}

// replayable groups what is to be explained by bank.
func replayable(q *statement.Quoted, opts *Options) ([][]statement.PCR, error) {
	var banks [][]statement.PCR
	if q == nil {
		return nil, tpmwire.Refuse(checkUncovered, "no quote", "one")
	}
	for _, p := range q.PCRs() { // ascending by bank
		if opts != nil && slices.Contains(opts.Unexplained, p.Index) {
			continue
		}
		if n := len(banks); n == 0 || banks[n-1][0].Bank != p.Bank {
			banks = append(banks, nil)
		}
		banks[len(banks)-1] = append(banks[len(banks)-1], p)
	}
	if len(banks) == 0 {
		return nil, tpmwire.Refuse(checkUncovered, "no quoted PCR to explain", "at least one")
	}
	return banks, nil
}

// guarded turns a panic of the third-party parser into an error.
func guarded[T, R any](parser func(T) (*R, error), input T) (out *R, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("parser: %v", r)
		}
	}()
	return parser(input)
}

// replayBank replays one bank. Each bank is replayed separately: given several values of one
// PCR, go-attestation is satisfied if one of them matches.
func replayBank(parsed *tcg.EventLog, pcrs []statement.PCR, opts *Options) ([]Event, error) {
	bank := pcrs[0].Bank
	ask := make([]tcg.PCR, len(pcrs))
	for n, p := range pcrs {
		ask[n] = tcg.PCR{Index: p.Index, Digest: p.Value, DigestAlg: tpmwire.HashOf(bank)}
	}
	replayed, err := parsed.Verify(ask)
	if err != nil {
		e := &refusal.Error{Check: checkReplay, Err: err}
		if failed := (tcg.ReplayError{}); errors.As(err, &failed) && len(failed.InvalidPCRs) > 0 {
			e.Got = fmt.Sprintf("other values for PCRs %v", failed.InvalidPCRs)
			e.Want = "the quoted values" + unexplainedHint
		}
		return nil, e
	}
	events := make([]Event, len(replayed))
	for n, e := range replayed {
		events[n] = Event{PCR: e.Index, Bank: bank, Digest: e.Digest, UntrustedType: Type(e.Type), UntrustedData: e.Data}
	}
	logged := parsed.Events(tcg.HashAlg(bank)) // which has the same numbers
	for _, p := range pcrs {
		if err := checkExplained(p, events, logged, opts); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// checkExplained computes a PCR from its events and nothing else, and compares their number
// with the log's: go-attestation ignores a PCR without events, and may add some of its own.
func checkExplained(p statement.PCR, events []Event, logged []tcg.Event, opts *Options) error {
	own := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.PCR != p.Index })
	if !explains(own, p.Bank, p.Index, p.Value) {
		return tpmwire.Refuse(checkReplay, fmt.Sprintf("%d events of PCR %d that lead to another value", len(own), p.Index),
			p.String()+unexplainedHint)
	}
	n := 0
	for _, e := range logged {
		if e.Index == p.Index && Type(e.Type) != typeNoAction {
			n++
		}
	}
	if n == len(own) || p.Index == 5 && opts != nil && opts.AllowMissingExitBootServices {
		return nil
	}
	return tpmwire.Refuse(checkReplay, fmt.Sprintf("a log that lacks %d events of PCR %d", len(own)-n, p.Index),
		"a whole one, or AllowMissingExitBootServices")
}

// typeNoAction is EV_NO_ACTION: an event that extends nothing.
const typeNoAction Type = 3

// digest returns nil for an unknown bank.
func digest(bank tpm2.TPMAlgID, data []byte) []byte {
	return tpmwire.AppendDigest(nil, tpmwire.HashOf(bank), data)
}

// explains reports whether the events of one PCR, extended one after the other from a value
// that a reset gives, lead to value.
func explains(events []Event, bank tpm2.TPMAlgID, index int, value []byte) bool {
	for _, reached := range startValues(index, len(value)) {
		for _, e := range events {
			if len(e.Digest) != len(value) {
				return false
			}
			reached = digest(bank, slices.Concat(reached, e.Digest))
		}
		if bytes.Equal(reached, value) {
			return true
		}
	}
	return false
}

// startValues are the values that a PCR can have after a reset of the machine: TCG PC Client
// Platform TPM Profile 1.05, 5.4.1. All bits are zero; PCR 0 ends with the locality of
// TPM2_Startup (0, 3 or 4 if a hardware measurement came first); those of the dynamic launch
// have all bits set until there is one.
func startValues(index, size int) [][]byte {
	zero := make([]byte, size)
	switch {
	case index == 0:
		three, four := make([]byte, size), make([]byte, size)
		three[size-1], four[size-1] = 3, 4
		return [][]byte{zero, three, four}
	case index >= 17 && index <= 22:
		return [][]byte{zero, bytes.Repeat([]byte{0xff}, size)}
	}
	return [][]byte{zero}
}
