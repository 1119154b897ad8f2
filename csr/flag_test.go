package csr

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

var testFlag = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 1} // RFC 5612: for documents

func TestFlag(t *testing.T) {
	flag, err := FlagExtension(testFlag)
	if err != nil || flag.Critical || !flag.Id.Equal(testFlag) || !bytes.Equal(flag.Value, []byte{1, 1, 0xff}) {
		t.Fatalf("FlagExtension = %+v, %v", flag, err)
	}
	flag.Value[2], flag.Id[0] = 0, 2 // the caller's own bytes
	flag, _ = FlagExtension(testFlag)
	other := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true}
	for _, test := range []struct {
		extensions []pkix.Extension
		want       bool
	}{
		{nil, false},
		{[]pkix.Extension{other}, false},
		{[]pkix.Extension{other, flag}, true},
	} {
		if got, err := HasFlag(test.extensions, testFlag); err != nil || got != test.want {
			t.Errorf("HasFlag(%v) = %v, %v", test.extensions, got, err)
		}
	}
	critical := flag
	critical.Critical = true
	with := func(value ...byte) []pkix.Extension { return []pkix.Extension{{Id: testFlag, Value: value}} }
	for name, extensions := range map[string][]pkix.Extension{
		"two":            {flag, flag},
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
		got, err := HasFlag(extensions, testFlag)
		if got {
			t.Errorf("%s: HasFlag = true", name)
		}
		wantRule(t, name, err, RuleFlag)
	}
}

func TestFlagIdentifierMustFit(t *testing.T) {
	for _, id := range []asn1.ObjectIdentifier{nil, {1}, {3, 1}, {1, 40}, {1, 2, -1}, {1, 2, 1 << 31}, make(asn1.ObjectIdentifier, 1000)} {
		_, err := FlagExtension(id)
		wantRule(t, "FlagExtension", err, RuleFlag)
	}
	if _, err := FlagExtension(asn1.ObjectIdentifier{1, 2, 1<<31 - 1}); err != nil {
		t.Error(err)
	}
}
