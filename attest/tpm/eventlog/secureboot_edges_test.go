package eventlog

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/refusal"
)

// The lengths of a variable are those of its name and value, with what is behind it. Every
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

// A log that never separates what was set from what was used is refused, though all else
// is there, and so is one that separates twice.
func TestSeparatorsOfSecureBoot(t *testing.T) {
	for n, want := range map[int]refusal.Check{0: checkSecureBoot, 1: "", 2: checkSecureBoot} {
		good := secureBootOfTest("\x01")
		boot := append(slices.Clone(good[:5]), slices.Repeat(good[5:6], n)...)
		boot = append(boot, good[6])
		l, err := Replay(writeLog(boot...), quoted(t, measure(tpm2.TPMAlgSHA256, 7, boot...)), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.SecureBoot(tpm2.TPMAlgSHA256)
		expectCheck(t, err, want)
		p := &Policy{PCRs: []int{7}, RequireSecureBoot: true}
		expectCheck(t, p.CheckQuote(t.Context(), &tpm.Measured{
			Quote: quoted(t, measure(tpm2.TPMAlgSHA256, 7, boot...)), EventLog: writeLog(boot...),
		}), want)
	}
}
