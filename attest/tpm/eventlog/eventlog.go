package eventlog

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
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

// Event is one measurement, of which the quote proves PCR, Bank, Digest and the place among
// the events of its PCR.
type Event struct {
	// PCR is the index of the register, 0 to 31, and Bank its hash.
	PCR  int
	Bank tpm2.TPMAlgID
	// Digest is the value that was extended, 20 to 64 bytes.
	Digest []byte
	// UntrustedType is the type in the log, which the writer of the log chose: it means something
	// only together with data from [Event.Data].
	UntrustedType Type
	// UntrustedData are the data in the log, unchecked: see [Event.Data].
	UntrustedData []byte
}

// Data returns the event's data if its digest is that of the data, otherwise a [*refusal.Error]
// with the check "event-data". It is an error for many honest events: the digest of a program's
// event is the program's, and the data are its location.
func (e *Event) Data() ([]byte, error) {
	e = cmp.Or(e, new(Event))
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

// Events returns the replayed events in the order of the log, bank by bank: only events that extend
// a quoted PCR.
func (l *Log) Events() []Event { return slices.Clone(l.events) }

// EventsOf returns the replayed events of one PCR in one bank, in order. If the quote does not
// cover the PCR or its value was not replayed, that is a [*refusal.Error]; no events and no
// error means that nothing was measured.
func (l *Log) EventsOf(bank tpm2.TPMAlgID, index int) ([]Event, error) {
	if l == nil || l.quoted == nil {
		return nil, checkUncovered.Refuse("no replayed log", "one of Replay")
	}
	value, err := l.quoted.Value(bank, index)
	if err != nil {
		return nil, err
	}
	p := statement.PCR{Bank: bank, Index: index, Value: value}
	events := ofPCR(p, l.events)
	if !explains(p, events) {
		return nil, checkUncovered.Refuse("PCR "+strconv.Itoa(index)+", which was not replayed", "one that Replay explains")
	}
	return events, nil
}

// Replay checks a log against a verified quote. It returns a [*refusal.Error] unless the log
// explains the value of every quoted PCR in every quoted bank, except PCRs that any program can
// reset and opts.Unexplained; opts may be nil. A PCR without events must have the value that a
// reset gives it.
func Replay(log []byte, q *statement.Quoted, opts *Options) (*Log, error) {
	if len(log) == 0 {
		return nil, CheckMissing.Refuse("", "an event log")
	}
	if len(log) > statement.MaxEventLogSize {
		return nil, checkEncoding.Refuse(strconv.Itoa(len(log))+" bytes", "at most "+strconv.Itoa(statement.MaxEventLogSize))
	}
	banks, err := replayable(q, opts)
	if err != nil {
		return nil, err
	}
	entries, err := parseLog(log)
	if err != nil {
		return nil, err
	}
	l := &Log{quoted: q}
	for _, pcrs := range banks {
		events, err := replayBank(entries, pcrs, opts)
		if err != nil {
			return nil, err
		}
		l.events = append(l.events, events...)
	}
	return l, nil
}

// replayable groups the PCRs to explain by bank.
func replayable(q *statement.Quoted, opts *Options) ([][]statement.PCR, error) {
	var banks [][]statement.PCR
	if q == nil {
		return nil, checkUncovered.Refuse("no quote", "one")
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
		return nil, checkUncovered.Refuse("no quoted PCR to explain", "at least one")
	}
	return banks, nil
}

// replayBank returns the events of the PCRs of one bank, in the order of the log.
func replayBank(entries []entry, pcrs []statement.PCR, opts *Options) ([]Event, error) {
	bank := pcrs[0].Bank
	events, added := make([]Event, 0, len(entries)), []Event(nil)
	for n := range entries {
		e := &entries[n]
		if e.typ != typeNoAction && slices.ContainsFunc(pcrs, func(p statement.PCR) bool { return p.Index == e.pcr }) {
			events = append(events, Event{PCR: e.pcr, Bank: bank, Digest: e.digest(bank), UntrustedType: e.typ, UntrustedData: e.data})
		}
	}
	var unexplained []statement.PCR
	for _, p := range pcrs {
		more, ok := explained(p, ofPCR(p, events))
		switch {
		case !ok:
			unexplained = append(unexplained, p)
		case len(more) > 0 && (opts == nil || !opts.AllowMissingExitBootServices):
			return nil, checkReplay.Refuse(fmt.Sprintf("a log that lacks %d events of PCR %d", len(more), p.Index),
				"a whole one, or AllowMissingExitBootServices")
		}
		added = append(added, more...)
	}
	if unexplained != nil {
		return nil, notExplained(entries, events, unexplained)
	}
	return append(events, added...), nil
}

// ofPCR returns the events of one PCR in one bank, in a new list.
func ofPCR(p statement.PCR, events []Event) []Event {
	list := []Event{}
	for n := range events {
		if events[n].PCR == p.Index && events[n].Bank == p.Bank {
			list = append(list, events[n])
		}
	}
	return list
}

// explained reports whether the events lead to the value of the PCR, or would with more, the events
// of ExitBootServices: profile 1.06, 3.3.4.6.
func explained(p statement.PCR, events []Event) (more []Event, ok bool) {
	reached := extended(startValues(p.Index, len(p.Value)), p.Bank, events)
	if contains(reached, p.Value) {
		return nil, true
	}
	const invoked, returned = "Exit Boot Services Invocation", "Exit Boot Services Returned with "
	for _, texts := range [][]string{{invoked, returned + "Success"}, {invoked, returned + "Failure"}, {invoked, returned + "Failure", returned + "Success"}} {
		if more = nil; p.Index != 5 {
			break
		}
		for _, text := range texts {
			more = append(more, Event{PCR: 5, Bank: p.Bank, Digest: digest(p.Bank, []byte(text)), UntrustedType: typeAction, UntrustedData: []byte(text)})
		}
		if contains(extended(reached, p.Bank, more), p.Value) {
			return more, true
		}
	}
	return nil, false
}

// notExplained is the error for PCRs of one bank that have other values than the log gives
// them. Options.Unexplained is named only where none of them is the firmware's own: profile
// 1.06, 3.3.4.
func notExplained(entries []entry, events []Event, pcrs []statement.PCR) error {
	bank := tpmwire.HashOf(pcrs[0].Bank)
	if !slices.ContainsFunc(entries, func(e entry) bool { return len(e.digest(pcrs[0].Bank)) == bank.Size() }) {
		return checkReplay.Refuse(fmt.Sprintf("a log without a digest of %s", bank),
			fmt.Sprintf("one of every event: the firmware's settings say which banks it extends and logs, and %s must be among them", bank))
	}
	var got []string
	for _, p := range pcrs {
		got = append(got, fmt.Sprintf("PCR %d (events: %d)", p.Index, len(ofPCR(p, events))))
	}
	want := "the quoted values; PCRs that the system extends after boot (10 under Linux' IMA) belong into Options.Unexplained"
	if slices.ContainsFunc(pcrs, func(p statement.PCR) bool { return p.Index < 8 }) {
		want = "the quoted values, by the whole log of this boot: boot again if a program measured since;" +
			" update the firmware if its area for the log is too small"
	}
	return checkReplay.Refuse("other values of "+strings.Join(got, ", "), want)
}

// digest returns nil for an unknown bank.
func digest(bank tpm2.TPMAlgID, data []byte) []byte {
	return tpmwire.AppendDigest(nil, tpmwire.HashOf(bank), data)
}

// explains reports whether the events of the PCR, extended one after the other from a value
// that a reset gives, lead to its value.
func explains(p statement.PCR, events []Event) bool {
	return contains(extended(startValues(p.Index, len(p.Value)), p.Bank, events), p.Value)
}

func contains(values [][]byte, value []byte) bool {
	return slices.ContainsFunc(values, func(v []byte) bool { return bytes.Equal(v, value) })
}

// extended extends each value by the events, one after the other. It returns nil if a digest has
// another size.
func extended(values [][]byte, bank tpm2.TPMAlgID, events []Event) (reached [][]byte) {
	hash := tpmwire.HashOf(bank)
	var both []byte
	for _, value := range values {
		value = bytes.Clone(value)
		for n := range events {
			if len(events[n].Digest) != len(value) {
				return nil
			}
			both = append(append(both[:0], value...), events[n].Digest...)
			value = tpmwire.AppendDigest(value[:0], hash, both)
		}
		reached = append(reached, value)
	}
	return reached
}

// startValues are the values that a PCR can have after a reset of the machine: TCG PC Client
// Platform TPM Profile 1.05, 5.4.1. All bits are zero; PCR 0 ends with the locality of TPM2_Startup
// (0, 3 or 4 if a hardware measurement came first); the PCRs of the dynamic launch have all bits
// set until there is one.
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
