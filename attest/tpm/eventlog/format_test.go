package eventlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
)

// stated is an algorithm of a header, and how long it says that its digests are.
type stated struct {
	alg  uint16
	size uint16
}

const vendorAlg = 0xabcd // which no registry has

// header is the first event of a log in the format of TPM 2.0.
func header(algs ...stated) []byte {
	le := binary.LittleEndian
	id := append([]byte(specID), 0, 0, 0, 0, 0, 2, 105, 2)
	id = le.AppendUint32(id, uint32(len(algs)))
	for _, a := range algs {
		id = le.AppendUint16(le.AppendUint16(id, a.alg), a.size)
	}
	return oldEvent(0, typeNoAction, make([]byte, 20), append(id, 4, 'v', 'e', 'n', 'd'))
}

// oldEvent is an event in the format of TPM 1.2.
func oldEvent(pcr uint32, typ Type, sum, data []byte) []byte {
	le := binary.LittleEndian
	b := append(le.AppendUint32(le.AppendUint32(nil, pcr), uint32(typ)), sum...)
	return append(le.AppendUint32(b, uint32(len(data))), data...)
}

// newEvent is an event with digests of these algorithms: what SDK computes, or else 0x33.
func newEvent(e logged, algs ...stated) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, uint32(e.pcr)), uint32(e.typ)), uint32(len(algs)))
	for _, a := range algs {
		sum := e.sum(tpm2.TPMAlgID(a.alg))
		if sum == nil {
			sum = bytes.Repeat([]byte{0x33}, int(a.size))
		}
		b = append(le.AppendUint16(b, a.alg), sum...)
	}
	return append(le.AppendUint32(b, uint32(len(e.data))), e.data...)
}

func wholeLog(head []byte, events []logged, algs ...stated) []byte {
	for _, e := range events {
		head = append(head, newEvent(e, algs...)...)
	}
	return head
}

func oldLog(events ...logged) []byte {
	var log []byte
	for _, e := range events {
		log = append(log, oldEvent(uint32(e.pcr), e.typ, e.sum(tpm2.TPMAlgSHA1), []byte(e.data))...)
	}
	return log
}

// Logs in every form that firmware writes replay: with digests that the SDK does not compute,
// in the format of TPM 1.2, and with the rest of the area that the firmware cleared.
func TestFormats(t *testing.T) {
	sha1, sha256 := stated{4, 20}, stated{0xb, 32}
	sm3, sha3, vendor := stated{0x12, 32}, stated{0x27, 32}, stated{vendorAlg, 48}
	boot := bootOfTest()
	for name, c := range map[string]struct {
		log  []byte
		bank tpm2.TPMAlgID
	}{
		"SHA-256":                       {wholeLog(header(sha256), boot, sha256), tpm2.TPMAlgSHA256},
		"SM3 behind it":                 {wholeLog(header(sha256, sm3), boot, sha256, sm3), tpm2.TPMAlgSHA256},
		"SM3 and SHA-3 before it":       {wholeLog(header(sm3, sha3, sha256), boot, sm3, sha3, sha256), tpm2.TPMAlgSHA256},
		"an algorithm of a vendor":      {wholeLog(header(vendor, sha256), boot, vendor, sha256), tpm2.TPMAlgSHA256},
		"one that no event has":         {wholeLog(header(vendor, sm3, sha256), boot, sha256), tpm2.TPMAlgSHA256},
		"SM3 that the header lacks":     {wholeLog(header(sha256), boot, sm3, sha256), tpm2.TPMAlgSHA256},
		"SHA-256 that the header lacks": {wholeLog(header(sha1), boot, sha1, sha256), tpm2.TPMAlgSHA256},
		"an empty header":               {wholeLog(header(), boot, sha256), tpm2.TPMAlgSHA256},
		"a digest twice":                {wholeLog(header(sha256), boot, sha256, sha256), tpm2.TPMAlgSHA256},
		"TPM 1.2":                       {oldLog(boot...), tpm2.TPMAlgSHA1},
		"TPM 1.2 with a header": {append(oldEvent(0, typeNoAction, make([]byte, 20), []byte("Spec ID Event00\x00\x00\x00\x00\x00\x02\x01\x00\x02\x04vend")),
			oldLog(boot...)...), tpm2.TPMAlgSHA1},
		"an area of zeros":             {append(wholeLog(header(sha256), boot, sha256), make([]byte, 16)...), tpm2.TPMAlgSHA256},
		"a large area":                 {append(wholeLog(header(sha256), boot, sha256), bytes.Repeat([]byte{0xff}, 60000)...), tpm2.TPMAlgSHA256},
		"an area of zeros for TPM 1.2": {append(oldLog(boot...), make([]byte, 1000)...), tpm2.TPMAlgSHA1},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Replay(c.log, quoted(t, measureAll(c.bank, []int{0, 1, 4, 5}, boot...)...), nil)
			expectCheck(t, err, "")
			if n := len(l.Events()); n != 7 {
				t.Errorf("%d events, want 7", n)
			}
			at := bytes.Index(c.log, boot[2].sum(c.bank))
			c.log[at] ^= 1
			_, err = Replay(c.log, quoted(t, measureAll(c.bank, []int{0, 1, 4, 5}, boot...)...), nil)
			expectCheck(t, err, checkReplay)
		})
	}
}

// The refusal of a malformed log names the place, and the remedy.
func TestFormatsRefused(t *testing.T) {
	sha256 := stated{0xb, 32}
	boot := bootOfTest()
	log := wholeLog(header(sha256), boot, sha256)
	padded := func(size int) []byte { // every event's data filled up, as their length does not say
		padded := header(sha256)
		for _, e := range boot {
			padded = append(padded, newEvent(e, sha256)...)
			padded = append(padded, make([]byte, size-len(e.data))...)
		}
		return padded
	}
	huge := binary.LittleEndian.AppendUint32(slices.Clone(log), 4)
	huge = append(huge, 5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff) // digests
	longest := header(sha256)
	binary.LittleEndian.PutUint32(longest[32+24:], 1<<32-1) // algorithms
	for name, c := range map[string]struct {
		log  []byte
		says string
	}{
		"zeros":                  {make([]byte, 4096), "4096 bytes 0x00, want events: the firmware"},
		"a zero":                 {[]byte{0}, "1 bytes 0x00"},
		"cleared bytes":          {bytes.Repeat([]byte{0xff}, 65536), "65536 bytes 0xff"},
		"a cleared byte":         {append(slices.Clone(log), 0), "longer than the log (event 9"},
		"fifteen":                {append(slices.Clone(log), make([]byte, 15)...), "longer than the log (event 9"},
		"an area not cleared":    {append(append(slices.Clone(log), make([]byte, 100)...), 1), "zeros where an event should begin (event 9"},
		"padded":                 {padded(50), "zeros where an event should begin (event 2, at byte"},
		"padded and TPM 1.2":     {append(append(oldLog(boot[:2]...), make([]byte, 33)...), oldLog(boot[2:]...)...), "zeros where an event should begin (event 2"},
		"an unknown algorithm":   {wholeLog(header(sha256), boot, stated{vendorAlg, 32}), "algorithm 0xabcd, which the header does not name (event 1"},
		"a first event":          {log[:31], "ends in its first event"},
		"four billion digests":   {huge, "longer than the log"},
		"four billion algorithm": {longest, "shorter than its list of algorithms"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Replay(c.log, quoted(t, measureAll(tpm2.TPMAlgSHA256, []int{0, 4}, boot...)...), nil)
			expectCheck(t, err, checkEncoding)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
	_, err := Replay(padded(50), quoted(t, measureAll(tpm2.TPMAlgSHA256, []int{0, 4}, boot...)...), nil)
	if !strings.Contains(err.Error(), "coreboot") || !strings.Contains(err.Error(), "update of the firmware") {
		t.Errorf("%v does not say who does what", err)
	}
}

// The error of PCRs that the log does not explain advises to leave one out only where that is
// the likely cause: never for the firmware's own, and never where the whole bank is missing.
func TestReplayAdvice(t *testing.T) {
	sha := tpm2.TPMAlgSHA256
	boot := bootOfTest()
	other := func(indexes ...int) []statement.PCR {
		pcrs := measureAll(sha, []int{0, 4, 5}, boot...)
		for _, i := range indexes {
			if at := slices.IndexFunc(pcrs, func(p statement.PCR) bool { return p.Index == i }); at >= 0 {
				pcrs = slices.Delete(pcrs, at, at+1)
			}
			pcrs = append(pcrs, statement.PCR{Bank: sha, Index: i, Value: bytes.Repeat([]byte{7}, 32)})
		}
		return pcrs
	}
	for name, c := range map[string]struct {
		log    []byte
		pcrs   []statement.PCR
		advice bool
		says   string
	}{
		"SHA-1 alone":                    {oldLog(boot...), other(), false, "a log without a digest of SHA-256"},
		"only SHA-1, and IMA":            {oldLog(boot...), other(10), false, "a log without a digest of SHA-256"},
		"an area that was full":          {writeLog(boot[:4]...), other(), false, "PCR 4 (events: 1), PCR 5 (events: 0)"},
		"another value":                  {writeLog(boot...), other(4), false, "PCR 4 (events: 2)"},
		"no event of a firmware's PCR":   {writeLog(boot...), other(7), false, "PCR 7 (events: 0)"},
		"no event of PCR 1, and IMA":     {writeLog(boot...), other(1, 10), false, "PCR 1 (events: 0), PCR 10 (events: 0)"},
		"IMA":                            {writeLog(boot...), other(10), true, "PCR 10 (events: 0)"},
		"a boot loader's":                {writeLog(append(boot, logged{8, 0xd, "grub", ""})...), other(8, 9), true, "PCR 8 (events: 1), PCR 9 (events: 0)"},
		"no events, and a value of none": {oldLog(boot[:1]...), other(4), false, "a log without a digest of SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Replay(c.log, quoted(t, c.pcrs...), nil)
			expectCheck(t, err, checkReplay)
			var e *refusal.Error
			if !errors.As(err, &e) || e.Want == "" || !strings.Contains(e.Got, c.says) || strings.Contains(e.Want, "Unexplained") != c.advice {
				t.Errorf("got %v, want %q, advice %t", err, c.says, c.advice)
			}
		})
	}
}

// TestReplayAllocations: the memory that a log takes does not grow with the number of its events, but
// for the list of them.
func TestReplayAllocations(t *testing.T) {
	sha256 := stated{uint16(tpm2.TPMAlgSHA256), 32}
	many := wholeLog(header(sha256), slices.Repeat([]logged{{5, typeAction, "", ""}}, 2600), sha256)
	empty := wholeLog(header(sha256), slices.Repeat([]logged{{5, typeAction, "", ""}}, 8000))
	q := quoted(t, measureAll(tpm2.TPMAlgSHA256, firmwarePCRs)...)
	for name, log := range map[string][]byte{"digests": many, "no digests": empty} {
		if len(log) > statement.MaxEventLogSize {
			t.Fatalf("%s: %d bytes", name, len(log))
		}
		if n := testing.AllocsPerRun(3, func() {
			if _, err := Replay(log, q, nil); !errors.Is(err, checkReplay) {
				t.Error(err)
			}
		}); n > 200 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
