package eventlog

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// variable is a UEFI_VARIABLE_DATA.
func variable(vendor []byte, name, value string) string {
	units := utf16.Encode([]rune(name))
	le := binary.LittleEndian
	b := slices.Clone(vendor)
	b = le.AppendUint64(le.AppendUint64(b, uint64(len(units))), uint64(len(value)))
	for _, u := range units {
		b = le.AppendUint16(b, u)
	}
	return string(append(b, value...))
}

// hashList is an EFI_SIGNATURE_LIST of one SHA-256 digest: UEFI 2.10, 32.4.1.
func hashList() string {
	le := binary.LittleEndian
	b := []byte{0x26, 0x16, 0xc4, 0xc1, 0x4c, 0x50, 0x92, 0x40, 0xac, 0xa9, 0x41, 0xf9, 0x36, 0x93, 0x43, 0x28}
	b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, 28+48), 0), 48)
	return string(append(b, make([]byte, 48)...))
}

const separator = "\x00\x00\x00\x00"

// secureBootOfTest is what firmware measures into PCR 7.
func secureBootOfTest(enabled string) []logged {
	other := slices.Repeat([]byte{0xd7}, 16)
	return []logged{
		{7, typeVariable, variable(globalVariable, "SecureBoot", enabled), ""},
		{7, typeVariable, variable(globalVariable, "PK", hashList()), ""},
		{7, typeVariable, variable(globalVariable, "KEK", hashList()), ""},
		{7, typeVariable, variable(other, "db", hashList()), ""},
		{7, typeVariable, variable(other, "dbx", hashList()), ""},
		{7, typeSeparator, separator, ""},
		{7, 0x800000e0, variable([]byte{0x50, 0xab, 0x5d, 0x60, 0x46, 0xe0, 0x00, 0x43, 0xab, 0xb6, 0x3d, 0xd8, 0x10, 0xdd, 0x8b, 0x23}, "SbatLevel", "x"), ""},
	}
}

func TestSecureBoot(t *testing.T) {
	for _, bank := range []tpm2.TPMAlgID{tpm2.TPMAlgSHA1, tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384} {
		for data, want := range map[string]bool{"\x01": true, "\x00": false} {
			boot := secureBootOfTest(data)
			l, err := Replay(writeLog(boot...), quoted(t, measure(bank, 7, boot...)), nil)
			testkit.NoError(t, err)
			state, err := l.SecureBoot(bank)
			if err != nil {
				t.Fatalf("%x: %v", bank, err)
			}
			if state.Enabled != want || len(state.PermittedHashes) != 1 || len(state.ForbiddenHashes) != 1 {
				t.Errorf("%x: %+v", bank, state)
			}
		}
	}
}

// A log without the state is refused. In each case the quote fits the log: the attacker's changes
// were measured so, or are not covered by a digest.
func TestSecureBootRefuses(t *testing.T) {
	sha := tpm2.TPMAlgSHA256
	for _, c := range []struct {
		name   string
		want   refusal.Check
		change func([]logged) []logged
	}{
		{"nothing measured", CheckSecureBoot, func([]logged) []logged { return []logged{{7, 5, "x", ""}}[:0] }},
		{"no variable", CheckSecureBoot, func(b []logged) []logged { return b[1:] }},
		{"no separator", CheckSecureBoot, func(b []logged) []logged { return b[:5] }},
		{"two separators", CheckSecureBoot, func(b []logged) []logged { return append(b, b[5]) }},
		{"two variables", CheckSecureBoot, func(b []logged) []logged { return append([]logged{b[0]}, b...) }},
		{"the variable after the separator", CheckSecureBoot, func(b []logged) []logged { return append(b[1:], b[0]) }},
		{"the variable of another vendor", CheckSecureBoot, func(b []logged) []logged {
			b[0].data = variable(make([]byte, 16), "SecureBoot", "\x01")
			return b
		}},
		{"a value of 2", CheckSecureBoot, func(b []logged) []logged {
			b[0].data = variable(globalVariable, "SecureBoot", "\x02")
			return b
		}},
		{"data that were not measured", CheckSecureBoot, func(b []logged) []logged {
			b[0].digest = variable(globalVariable, "SecureBoot", "\x00")
			return b
		}},
		{"on, and no key was used", CheckSecureBoot, func(b []logged) []logged { return b[:6] }},
		{"on, and no platform key", CheckSecureBoot, func(b []logged) []logged { return slices.Delete(b, 1, 2) }},
		{"a debugger", CheckSecureBoot, func(b []logged) []logged {
			return append([]logged{{7, 0x80000007, "UEFI Debug Mode", ""}}, b...)
		}},
		{"not quoted", statement.CheckPCRNotQuoted, func([]logged) []logged { return []logged{{0, 8, "x", ""}} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			boot := c.change(secureBootOfTest("\x01"))
			pcr := measure(sha, 7, boot...)
			if len(boot) == 1 && boot[0].pcr == 0 {
				pcr = measure(sha, 0, boot...)
			}
			l, err := Replay(writeLog(boot...), quoted(t, pcr), nil)
			testkit.NoError(t, err)
			_, err = l.SecureBoot(sha)
			expectCheck(t, err, c.want)
		})
	}
	_, err := new(Log).SecureBoot(sha)
	expectCheck(t, err, checkUncovered)
}

// The lengths of a variable cover its name and value, or more. Every
// greater pair of lengths is refused, also where their sum overflows.
func TestLengthsOfVariables(t *testing.T) {
	data := func(characters, size uint64, rest ...byte) []byte {
		b := append(bytes.Repeat([]byte{7}, 16), make([]byte, 16)...)
		binary.LittleEndian.PutUint64(b[16:], characters)
		binary.LittleEndian.PutUint64(b[24:], size)
		return append(b, rest...)
	}
	for name, c := range map[string]struct {
		in    []byte
		ok    bool
		name  string
		value []byte
		more  int
	}{
		"nothing":                     {nil, false, "", nil, 0},
		"31 bytes":                    {make([]byte, 31), false, "", nil, 0},
		"32 bytes":                    {data(0, 0), true, "", nil, 0},
		"a value alone":               {data(0, 1, 1), true, "", []byte{1}, 0},
		"a name alone":                {data(1, 0, 'A', 0), true, "A", nil, 0},
		"both":                        {data(2, 1, 'A', 0, 'B', 0, 1), true, "AB", []byte{1}, 0},
		"a name that ends":            {data(1, 0, 'A'), false, "", nil, 0},
		"a longer name":               {data(2, 0, 'A', 0), false, "", nil, 0},
		"a name over the end":         {data(2, 0, 'A', 0, 'B'), false, "", nil, 0},
		"a longer value":              {data(1, 2, 'A', 0, 1), false, "", nil, 0},
		"a shorter value":             {data(1, 0, 'A', 0, 1), true, "A", nil, 1},
		"half of all for the name":    {data(2, 0, 'A', 0, 'B', 0), true, "AB", nil, 0},
		"a name of 2^63 characters":   {data(1<<63, 2, 'A', 0), false, "", nil, 0},
		"a name of 2^63+1 characters": {data(1<<63+1, 0, 'A', 0), false, "", nil, 0},
		"a name of 2^64-1 characters": {data(1<<64-1, 4, 'A', 0), false, "", nil, 0},
		"a value of 2^64-1 bytes":     {data(0, 1<<64-1), false, "", nil, 0},
		"a name and a value before 0": {data(2, 1<<64-2, 'A', 0), false, "", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v, ok := readVariable(c.in)
			if ok != c.ok || v.name != c.name || !bytes.Equal(v.value, c.value) || ok != (v.vendor != nil) || v.more != c.more {
				t.Errorf("got %+v, %v", v, ok)
			}
		})
	}
}

// A log without the separator is refused, though all else is there, and so is one with two.
func TestSeparatorsOfSecureBoot(t *testing.T) {
	for n, want := range map[int]refusal.Check{0: CheckSecureBoot, 1: "", 2: CheckSecureBoot} {
		good := secureBootOfTest("\x01")
		boot := append(slices.Clone(good[:5]), slices.Repeat(good[5:6], n)...)
		boot = append(boot, good[6])
		l, err := Replay(writeLog(boot...), quoted(t, measure(tpm2.TPMAlgSHA256, 7, boot...)), nil)
		testkit.NoError(t, err)
		_, err = l.SecureBoot(tpm2.TPMAlgSHA256)
		expectCheck(t, err, want)
		p := &BootPolicy{PCRs: []int{7}, RequireSecureBoot: true}
		expectCheck(t, p.CheckQuote(t.Context(), &tpm.Measured{
			Quote: quoted(t, measure(tpm2.TPMAlgSHA256, 7, boot...)), EventLog: writeLog(boot...),
		}), want)
	}
}
