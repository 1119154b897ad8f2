package csr

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
	"testing"
)

var testFlag = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 1} // RFC 5612: for documents

func TestFlag(t *testing.T) {
	flag, err := flagExtension(testFlag)
	if err != nil || flag.Critical || !flag.Id.Equal(testFlag) || !bytes.Equal(flag.Value, []byte{1, 1, 0xff}) {
		t.Fatalf("flagExtension = %+v, %v", flag, err)
	}
	flag.Value[2], flag.Id[0] = 0, 2 // the caller's own bytes
	flag, _ = flagExtension(testFlag)
	other := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true}
	for _, test := range []struct {
		extensions []pkix.Extension
		want       bool
	}{
		{nil, false},
		{[]pkix.Extension{other}, false},
		{[]pkix.Extension{other, flag}, true},
	} {
		t.Run(fmt.Sprint(test.want), func(t *testing.T) {
			if got, err := hasFlag(test.extensions, testFlag); err != nil || got != test.want {
				t.Errorf("hasFlag(%v) = %v, %v", test.extensions, got, err)
			}
		})
	}
	critical := flag
	critical.Critical = true
	with := func(value ...byte) []pkix.Extension { return []pkix.Extension{{Id: testFlag, Value: value}} }
	for name, extensions := range map[string][]pkix.Extension{
		"critical":       {critical},
		"FALSE":          with(1, 1, 0),
		"TRUE as 01":     with(1, 1, 1),
		"empty":          with(),
		"trailing byte":  with(1, 1, 0xff, 0),
		"long form":      with(1, 0x81, 1, 0xff),
		"text":           with([]byte("true")...),
		"integer":        with(2, 1, 1),
		"two bytes long": with(1, 2, 0xff, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := hasFlag(extensions, testFlag)
			if got {
				t.Error("hasFlag = true")
			}
			wantRule(t, name, err, checkFlag)
		})
	}
}

func TestFlagIdentifierMustFit(t *testing.T) {
	for _, id := range []asn1.ObjectIdentifier{nil, {1}, {3, 1}, {1, 40}, {1, 2, -1}, {1, 2, 1 << 31}, {2, 5, 29}, {2, 5, 29, 17}, {2, 5, 29, 19},
		{1, 3, 6, 1, 5, 5, 7, 1, 24}, {1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}, make(asn1.ObjectIdentifier, 1000)} {
		_, err := flagExtension(id)
		wantRule(t, "flagExtension", err, checkFlag)
	}
	for _, id := range []asn1.ObjectIdentifier{{1, 2, 1<<31 - 1}, {2, 5, 30, 17}, {1, 3, 6, 1, 5, 5, 7}, {1, 3, 6, 1, 4, 1, 11129, 2, 1, 21, 1}} {
		if _, err := flagExtension(id); err != nil {
			t.Error(err)
		}
	}
}

// FuzzHasFlag reads two extensions, one at most under the flag's identifier.
func FuzzHasFlag(f *testing.F) {
	f.Add([]byte{1, 1, 0xff}, false, true, []byte{}, false, false)
	f.Add([]byte{1, 1, 0xff}, true, true, []byte{}, false, false)
	f.Add([]byte{1, 1, 0xff}, false, false, []byte{1, 1, 0xff}, false, true)
	f.Add([]byte{5, 0}, true, false, []byte{1, 1, 0}, false, true)
	f.Fuzz(func(t *testing.T, value []byte, critical, is bool, value2 []byte, critical2, is2 bool) {
		is2 = is2 && !is
		other := append(slices.Clone(testFlag), 1)
		id := map[bool]asn1.ObjectIdentifier{true: testFlag, false: other}
		extensions := []pkix.Extension{{Id: id[is], Critical: critical, Value: value}, {Id: id[is2], Critical: critical2, Value: value2}}
		good := func(value []byte, critical bool) bool { return !critical && bytes.Equal(value, []byte{1, 1, 0xff}) }
		bad := is && !good(value, critical) || is2 && !good(value2, critical2)
		got, err := hasFlag(extensions, testFlag)
		if got != (!bad && (is || is2)) || (err != nil) != bad {
			t.Errorf("hasFlag(%v) = %v, %v", extensions, got, err)
		}
	})
}
