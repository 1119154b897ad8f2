package eventlog

import (
	"bytes"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// Any log, good or bad, ends in an answer.
func FuzzReplay(f *testing.F) {
	testkit.BeginFuzz(f)
	boot := append(bootOfTest(), secureBootOfTest("\x01")...)
	f.Add(writeLog(boot...))
	f.Add(writeLog(secureBootOfTest("\x00")...))
	f.Add(writeLog())
	f.Add(oldLog(boot...))
	f.Add(wholeLog(header(stated{0x12, 32}, stated{0xb, 32}), boot, stated{0x12, 32}, stated{0xb, 32}))
	f.Add(append(writeLog(boot...), bytes.Repeat([]byte{0xff}, 40)...))
	f.Add([]byte{})
	q := quoted(f, measureAll(tpm2.TPMAlgSHA256, []int{0, 4, 5, 7}, boot...)...)
	f.Fuzz(func(t *testing.T, log []byte) {
		for _, o := range []*Options{nil, {Unexplained: []int{0, 4, 5}}, {AllowMissingExitBootServices: true}} {
			l, err := Replay(log, q, o)
			if err != nil {
				continue
			}
			_, _ = l.SecureBoot(tpm2.TPMAlgSHA256)
			for _, e := range l.Events() {
				_, _ = e.Data()
			}
		}
	})
}

// Any events, and a quote that fits them.
func FuzzSecureBoot(f *testing.F) {
	for _, e := range secureBootOfTest("\x01") {
		f.Add(uint32(e.typ), []byte(e.data))
	}
	f.Fuzz(func(t *testing.T, typ uint32, data []byte) {
		boot := append(secureBootOfTest("\x00"), logged{7, Type(typ), string(data), ""})
		l, err := Replay(writeLog(boot...), quoted(t, measure(tpm2.TPMAlgSHA256, 7, boot...)), nil)
		if err != nil {
			return // over the size
		}
		if state, err := l.SecureBoot(tpm2.TPMAlgSHA256); err == nil && state.Enabled {
			t.Fatalf("type %x, data %q after the separator turn Secure Boot on", typ, data)
		}
	})
}
