package der

import (
	"bytes"
	"testing"
)

// What stands around a certificate in an NV index is taken off, if it is a header and
// padding of one kind.
func TestTrimNVCertificate(t *testing.T) {
	certificate := "\x30\x03\x02\x01\x07"
	for _, c := range []struct {
		name, data string
		ok         bool
	}{
		{"a certificate", certificate, true},
		{"padded with 00", certificate + "\x00\x00", true},
		{"padded with ff", certificate + "\xff\xff", true},
		{"padded with both", certificate + "\x00\xff", false},
		{"padded with ff and 00", certificate + "\xff\x00", false},
		{"padded with 01", certificate + "\x01\x01", false},
		{"with a header", "\x10\x01\x00\x00\x07\x10\x02" + certificate, true},
		{"with half a header", "\x10\x01\x00\x00\x05" + certificate, true},
		{"padded behind its header", "\x10\x01\x00\x00\x05" + certificate + "\x00\x00", true},
		{"padded within its header", "\x10\x01\x00\x00\x07" + certificate + "\xff\xff", true},
		{"something behind its header", "\x10\x01\x00\x00\x05" + certificate + "\x30\x00", false},
		{"shorter than its header says", "\x10\x01\x00\x00\x06" + certificate, false},
		{"longer than its header says", "\x10\x01\x00\x00\x04" + certificate, false},
		{"a header that is cut off", "\x10\x01\x00\x00", false},
		{"a header's first bytes", "\x10\x01\x00", false},
		{"a header alone", "\x10\x01\x00\x00\x00", false},
		{"padding alone", "\x00\x00\x00", false},
		{"nothing", "", false},
		{"a SET", "\x31\x03\x02\x01\x07", false},
		{"cut off", certificate[:4], false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := TrimNVCertificate([]byte(c.data))
			if (err == nil) != c.ok || c.ok && !bytes.Equal(got, []byte(certificate)) || !c.ok && got != nil {
				t.Errorf("got %x, %v", got, err)
			}
		})
	}
}
