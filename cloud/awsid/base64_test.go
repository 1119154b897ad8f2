package awsid_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestParseBase64(t *testing.T) {
	for text, want := range map[string]string{"TUk=": "MI", "TU\nk=\n": "MI", "TUk": "", "TUk=\r\n": "MI", "TU\r\nk=": "MI", "TUk=\r": "", "TU\rk=": "", "TUk=\r\r\n": "", "TUl=": "", "TUk=TUk=": "", "": "", "\n": ""} {
		t.Run(text, func(t *testing.T) {
			got, err := awsid.ParseBase64([]byte(text))
			if string(got) != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, refusal.Check("awsid-encoding")) {
				t.Errorf("%q: %q, %v", text, got, err)
			}
		})
	}
	longest := append([]byte("TUk="), bytes.Repeat([]byte("\n"), 2*awsid.MaxSize-4)...)
	if got, err := awsid.ParseBase64(longest); err != nil || string(got) != "MI" {
		t.Errorf("as long as can be: %q, %v", got, err)
	}
	for _, text := range [][]byte{append(longest, '\n'), bytes.Repeat([]byte("A"), 1<<20)} {
		if _, err := awsid.ParseBase64(text); !errors.Is(err, refusal.Check("awsid-size")) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}
