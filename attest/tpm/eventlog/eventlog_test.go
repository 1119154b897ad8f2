package eventlog

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// A logged event, before it is written down.
type logged struct {
	pcr    int
	typ    Type
	data   string
	digest string // measured instead of data, where not empty
}

// banksOfTest are the banks of the logs that writeLog writes.
// Types of events that only tests name.
const (
	typeSeparator Type = 4
	typeVariable  Type = 0x80000001
)

var banksOfTest = []tpm2.TPMAlgID{tpm2.TPMAlgSHA1, tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384}

// writeLog writes a crypto-agile log: TCG PC Client Platform Firmware Profile 1.06, 10.2.
func writeLog(events ...logged) []byte {
	le := binary.LittleEndian
	id := append([]byte("Spec ID Event03\x00"), 0, 0, 0, 0, 0, 2, 0, 2)
	id = le.AppendUint32(id, uint32(len(banksOfTest)))
	for _, b := range banksOfTest {
		id = le.AppendUint16(le.AppendUint16(id, uint16(b)), uint16(tpmwire.HashOf(b).Size()))
	}
	id = append(id, 0)
	log := le.AppendUint32(le.AppendUint32(nil, 0), uint32(typeNoAction))
	log = append(log, make([]byte, 20)...)
	log = append(le.AppendUint32(log, uint32(len(id))), id...)
	for _, e := range events {
		log = le.AppendUint32(le.AppendUint32(log, uint32(e.pcr)), uint32(e.typ))
		log = le.AppendUint32(log, uint32(len(banksOfTest)))
		for _, b := range banksOfTest {
			log = append(le.AppendUint16(log, uint16(b)), e.sum(b)...)
		}
		log = append(le.AppendUint32(log, uint32(len(e.data))), e.data...)
	}
	return log
}

func (e logged) sum(bank tpm2.TPMAlgID) []byte {
	if e.digest != "" {
		return digest(bank, []byte(e.digest))
	}
	return digest(bank, []byte(e.data))
}

// measure is the reference: the value of a TPM's PCR after the events.
func measure(bank tpm2.TPMAlgID, index int, events ...logged) statement.PCR {
	value := make([]byte, tpmwire.HashOf(bank).Size())
	for _, e := range events {
		if e.pcr == index && e.typ != typeNoAction {
			value = digest(bank, append(bytes.Clone(value), e.sum(bank)...))
		}
	}
	return statement.PCR{Bank: bank, Index: index, Value: value}
}

func measureAll(bank tpm2.TPMAlgID, indexes []int, events ...logged) []statement.PCR {
	var pcrs []statement.PCR
	for _, i := range indexes {
		pcrs = append(pcrs, measure(bank, i, events...))
	}
	return pcrs
}

var softwareAK = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// quoted is a quote over just these values, signed by a key in software.
func quoted(t testing.TB, pcrs ...statement.PCR) *statement.Quoted {
	t.Helper()
	var selections []statement.PCRSelection
	sorted := slices.Clone(pcrs)
	slices.SortFunc(sorted, func(a, b statement.PCR) int { return int(a.Bank)*32 + a.Index - int(b.Bank)*32 - b.Index })
	sum := sha256.New()
	for _, p := range sorted {
		if n := len(selections); n == 0 || selections[n-1].Hash != p.Bank {
			selections = append(selections, statement.PCRSelection{Hash: p.Bank, Select: make([]byte, 3)})
		}
		selections[len(selections)-1].Select[p.Index/8] |= 1 << (p.Index % 8)
		sum.Write(p.Value)
	}
	a := statement.Attestation{Type: tpm2.TPMSTAttestQuote, QualifiedSigner: append([]byte{0, 0x0b}, make([]byte, 32)...),
		Quote: &statement.QuoteInfo{Selections: selections, PCRDigest: sum.Sum(nil)}}
	raw, err := a.Marshal()
	testkit.NoError(t, err)
	message := sha256.Sum256(raw)
	signature, err := softwareAK().Sign(rand.Reader, message[:], crypto.SHA256)
	testkit.NoError(t, err)
	q, err := statement.VerifyQuote(&statement.QuoteEvidence{Attest: raw, Signature: signature, PCRs: pcrs,
		RawSignature: &statement.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}},
		statement.QuoteOptions{AK: statement.AKFromIssuer(softwareAK().Public(), nil), InsecureEmptyQualifyingData: true, InsecureAllowSHA1Bank: true})
	testkit.NoError(t, err)
	return q
}

func expectCheck(t testing.TB, err error, want refusal.Check) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		return
	}
	var e *refusal.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Fatalf("got %v, want %s", err, want)
	}
}

// bootOfTest is a short boot.
func bootOfTest() []logged {
	return []logged{
		{0, typeNoAction, "StartupLocality\x00\x00", ""},
		{0, 8, "version", ""},
		{4, 0x80000003, "path of the boot loader", "boot loader"},
		{0, typeSeparator, "\x00\x00\x00\x00", ""},
		{4, typeSeparator, "\x00\x00\x00\x00", ""},
		{5, typeSeparator, "\x00\x00\x00\x00", ""},
		{5, 0x80000007, "Exit Boot Services Invocation", ""},
		{5, 0x80000007, "Exit Boot Services Returned with Success", ""},
	}
}

func TestReplay(t *testing.T) {
	boot := bootOfTest()
	log := writeLog(boot...)
	indexes := []int{0, 1, 4, 5, 16}
	pcrs := slices.Concat(measureAll(tpm2.TPMAlgSHA256, indexes, boot...), measureAll(tpm2.TPMAlgSHA384, indexes, boot...))
	l, err := Replay(log, quoted(t, pcrs...), nil)
	testkit.NoError(t, err)
	if n := len(l.Events()); n != 14 {
		t.Errorf("%d events, want seven in each bank", n)
	}
	events, err := l.EventsOf(tpm2.TPMAlgSHA384, 4)
	if err != nil || len(events) != 2 {
		t.Fatalf("%v, %v", events, err)
	}
	_, err = events[0].Data()
	expectCheck(t, err, checkEventData)
	if data, err := events[1].Data(); err != nil || string(data) != "\x00\x00\x00\x00" || events[1].UntrustedType.String() != "EV_SEPARATOR" {
		t.Errorf("%q, %v, %v", data, err, events[1].UntrustedType)
	}
	events, err = l.EventsOf(tpm2.TPMAlgSHA256, 1)
	if err != nil || len(events) != 0 {
		t.Errorf("PCR 1, where nothing was measured: %v, %v", events, err)
	}
	for index, want := range map[int]refusal.Check{2: statement.CheckPCRNotQuoted, 16: statement.CheckPCRResettable} {
		_, err = l.EventsOf(tpm2.TPMAlgSHA256, index)
		expectCheck(t, err, want)
	}
	_, err = new(Log).EventsOf(tpm2.TPMAlgSHA256, 0)
	expectCheck(t, err, checkUncovered)
}

// Each case changes one thing in the quote or in the log.
func TestReplayRefuses(t *testing.T) {
	sha := tpm2.TPMAlgSHA256
	indexes := []int{0, 1, 4, 5}
	for _, c := range []struct {
		name   string
		want   refusal.Check
		change func(boot []logged, pcrs []statement.PCR) ([]logged, []statement.PCR)
	}{
		{"nothing changed", "", func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { return b, p }},
		{"an event gone", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { return b[:7], p }},
		{"an event more", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { return append(b, b[1]), p }},
		{"another digest", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { b[2].digest = "rootkit"; return b, p }},
		{"another order", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { b[1], b[3] = b[3], b[1]; return b, p }},
		{"a measurement passed off as none", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { b[1].typ = typeNoAction; return b, p }},
		{"an event in another PCR", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { b[2].pcr = 1; return b, p }},
		{"another value", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { p[2].Value[0] ^= 1; return b, p }},
		// go-attestation accepts any value of a PCR without events.
		{"a value without events", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) { p[1].Value[0] ^= 1; return b, p }},
		{"all events of a PCR gone", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) {
			return slices.DeleteFunc(b, func(e logged) bool { return e.pcr == 4 }), p
		}},
		// go-attestation is content with one bank of two.
		{"one bank of two", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) {
			other := measure(tpm2.TPMAlgSHA384, 4, b...)
			other.Value[0] ^= 1
			return b, append(p, other)
		}},
		{"a bank that the log has not", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) {
			return b, append(p, measure(tpm2.TPMAlgSHA512, 4, b...))
		}},
		{"a resettable PCR of any value", "", func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) {
			return b, append(p, statement.PCR{Bank: sha, Index: 23, Value: bytes.Repeat([]byte{7}, 32)})
		}},
		{"resettable PCRs alone", checkUncovered, func(b []logged, _ []statement.PCR) ([]logged, []statement.PCR) {
			return b, []statement.PCR{measure(sha, 16), measure(sha, 23)}
		}},
		{"PCRs of a dynamic launch that never was", "", func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) {
			return b, append(p, statement.PCR{Bank: sha, Index: 17, Value: bytes.Repeat([]byte{0xff}, 32)})
		}},
		{"all bits set elsewhere", checkReplay, func(b []logged, p []statement.PCR) ([]logged, []statement.PCR) {
			return b, append(p, statement.PCR{Bank: sha, Index: 8, Value: bytes.Repeat([]byte{0xff}, 32)})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			boot := bootOfTest()
			changed, pcrs := c.change(slices.Clone(boot), measureAll(sha, indexes, boot...))
			_, err := Replay(writeLog(changed...), quoted(t, pcrs...), nil)
			expectCheck(t, err, c.want)
		})
	}
}

func TestReplayRefusesWhatIsNoLog(t *testing.T) {
	boot := bootOfTest()
	q := quoted(t, measureAll(tpm2.TPMAlgSHA256, []int{0, 4}, boot...)...)
	log := writeLog(boot...)
	for name, c := range map[string]struct {
		log  []byte
		q    *statement.Quoted
		want refusal.Check
	}{
		"none":      {nil, q, CheckMissing},
		"too long":  {make([]byte, statement.MaxEventLogSize+1), q, checkEncoding},
		"cut":       {log[:len(log)-1], q, checkEncoding},
		"a byte":    {append(bytes.Clone(log), 0), q, checkEncoding},
		"garbage":   {[]byte(strings.Repeat("garbage ", 20)), q, checkEncoding},
		"no quote":  {log, nil, checkUncovered},
		"no values": {log, new(statement.Quoted), checkUncovered},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Replay(c.log, c.q, nil)
			expectCheck(t, err, c.want)
		})
	}
}

// Where events of PCR 5 may be missing, the value must still be one that events lead to: the
// value of a reset is refused once the log has any.
func TestReplayOfAResetAfterEvents(t *testing.T) {
	log := writeLog(bootOfTest()...)
	q := quoted(t, measure(tpm2.TPMAlgSHA256, 5))
	for _, allowed := range []bool{false, true} {
		_, err := Replay(log, q, &Options{AllowMissingExitBootServices: allowed})
		expectCheck(t, err, checkReplay)
	}
}

// An event without a digest for the quoted bank is not covered by the quote; a digest of the wrong
// length is refused.
func TestEventsOfNoBank(t *testing.T) {
	_, err := (&Event{UntrustedData: []byte("x")}).Data()
	expectCheck(t, err, checkEventData)
	_, err = (&Event{Bank: tpm2.TPMAlgSM3256, UntrustedData: []byte("x"), Digest: make([]byte, 32)}).Data()
	expectCheck(t, err, checkEventData)
	for size, want := range map[int]bool{0: false, 20: false, 31: false, 32: true, 33: false, 48: false} {
		e := Event{Bank: tpm2.TPMAlgSHA256, Digest: bytes.Repeat([]byte{7}, size)}
		value := sha256.Sum256(append(make([]byte, 32), e.Digest...))
		if got := explains(statement.PCR{Bank: e.Bank, Index: 8, Value: value[:]}, []Event{e}); got != want {
			t.Errorf("a digest of %d bytes: got %t", size, got)
		}
	}
}

// The firmware says from which locality it started the TPM; the quote proves it.
func TestReplayStartupLocality(t *testing.T) {
	boot := bootOfTest()
	for locality, want := range map[byte]refusal.Check{0: "", 3: "", 4: "", 1: checkReplay} {
		boot[0].data = "StartupLocality\x00" + string([]byte{locality})
		value := make([]byte, 32)
		value[31] = locality
		for _, e := range boot {
			if e.pcr == 0 && e.typ != typeNoAction {
				value = digest(tpm2.TPMAlgSHA256, append(value, e.sum(tpm2.TPMAlgSHA256)...))
			}
		}
		_, err := Replay(writeLog(boot...), quoted(t, statement.PCR{Bank: tpm2.TPMAlgSHA256, Index: 0, Value: value}), nil)
		expectCheck(t, err, want)
	}
}

func TestReplayOptions(t *testing.T) {
	boot := bootOfTest()
	pcrs := measureAll(tpm2.TPMAlgSHA256, []int{0, 5, 10}, boot...)
	pcrs[2].Value = bytes.Repeat([]byte{9}, 32) // what Linux measured
	q := quoted(t, pcrs...)
	early := writeLog(boot[:6]...) // read before the end of boot services

	_, err := Replay(early, q, &Options{Unexplained: []int{10}})
	expectCheck(t, err, checkReplay)
	_, err = Replay(early, q, &Options{AllowMissingExitBootServices: true})
	expectCheck(t, err, checkReplay)
	l, err := Replay(early, q, &Options{Unexplained: []int{10}, AllowMissingExitBootServices: true})
	expectCheck(t, err, "")
	if events, err := l.EventsOf(tpm2.TPMAlgSHA256, 5); err != nil || len(events) != 3 {
		t.Errorf("%v, %v", events, err)
	}
	_, err = l.EventsOf(tpm2.TPMAlgSHA256, 10)
	expectCheck(t, err, checkUncovered)
	_, err = Replay(early, q, &Options{Unexplained: []int{0, 5, 10}})
	expectCheck(t, err, checkUncovered)

	// The tolerance adds its events and nothing else, and only to PCR 5.
	elsewhere := slices.Clone(boot)
	for n := range elsewhere {
		if elsewhere[n].pcr == 5 {
			elsewhere[n].pcr = 6
		}
	}
	_, err = Replay(writeLog(elsewhere[:6]...), quoted(t, measure(tpm2.TPMAlgSHA256, 6, elsewhere...)), &Options{AllowMissingExitBootServices: true})
	expectCheck(t, err, checkReplay)
	boot[7].data = "something else"
	q = quoted(t, measureAll(tpm2.TPMAlgSHA256, []int{0, 5}, boot...)...)
	_, err = Replay(early, q, &Options{AllowMissingExitBootServices: true})
	expectCheck(t, err, checkReplay)
}
