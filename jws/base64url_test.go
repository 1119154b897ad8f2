package jws

import (
	"bytes"
	"encoding/base64"
	"testing"
)

func TestDecodeSegment(t *testing.T) {
	for text, want := range map[string]string{"": "", "YQ": "a", "YWI": "ab", "YWJj": "abc", "-_-_": "\xfb\xff\xbf"} {
		got, err := decodeSegment([]byte("x"), []byte(text))
		if err != nil || string(got) != "x"+want {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"Y", "YQ=", "YQ==", "YR", "YWJ", "YWJ=", "+/+/", " YQ", "YQ ", "Y Q", "YQ\n", "\nYQ", "\rYQ", "Y\nQ", "YWJj\r", "YW\r\nJj", "\n",
		"YQ.", "Y?", "YWJjY", "Y\x00Q", "YQ\xc3\xa9",
	} {
		if got, err := decodeSegment(nil, []byte(text)); err == nil {
			t.Errorf("%q: got %q", text, got)
		}
	}
}

// FuzzDecodeSegment: what is accepted encodes to itself.
func FuzzDecodeSegment(f *testing.F) {
	for _, text := range []string{"", "YQ", "YR", "YQ==", "YW\nJj", "-_-_", "+/"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := decodeSegment(nil, text)
		if err == nil && base64.RawURLEncoding.EncodeToString(got) != string(text) {
			t.Errorf("%q decodes to %q", text, got)
		}
		again, err := decodeSegment(nil, []byte(base64.RawURLEncoding.EncodeToString(text)))
		if err != nil || !bytes.Equal(again, text) {
			t.Errorf("%q does not come back: %q, %v", text, again, err)
		}
	})
}
