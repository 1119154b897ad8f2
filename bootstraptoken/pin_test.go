package bootstraptoken

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const somePin = "sha256:3b793efefe27a19f93b0fbe6e637e9c41d0dde8a377d6ab1c0f656bf1136dd8a"

func TestParsePin(t *testing.T) {
	for _, s := range []string{somePin, strings.ToUpper(somePin), "sha256:" + strings.ToUpper(somePin[7:])} {
		p, err := ParsePin(s)
		if err != nil || p.String() != somePin {
			t.Errorf("%s: %v, %v", s, p, err)
		}
	}
}

func TestParsePinRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":             "",
		"no prefix":           somePin[7:],
		"another hash":        "sha512:" + somePin[7:],
		"another hash's size": "sha1:" + somePin[7:47],
		"short":               somePin[:len(somePin)-1],
		"an odd byte less":    somePin[:len(somePin)-2],
		"long":                somePin + "0",
		"no hex":              somePin[:len(somePin)-1] + "g",
		"space in front":      " " + somePin[:len(somePin)-1],
		"line feed behind":    somePin[:len(somePin)-1] + "\n",
		"base64":              "sha256:" + strings.Repeat("A", 43) + "=",
		"zeros":               "sha256:" + strings.Repeat("0", 64),
		"no colon":            "sha256/" + somePin[7:],
		"two colons":          "sha256::" + somePin[8:],
		"1 MiB":               strings.Repeat("a", 1<<20),
	} {
		p, err := ParsePin(s)
		if !errors.Is(err, CheckPin) || !p.IsZero() {
			t.Errorf("%s: %v, %v, want %v", name, p, err, CheckPin)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func TestPinOf(t *testing.T) {
	ca := newTestCA(t, "one")
	again := ca.renewed(t)
	if PinOf(ca.cert) != PinOf(again.cert) {
		t.Error("a new certificate of the same key has another pin")
	}
	if PinOf(ca.cert) == PinOf(newTestCA(t, "one").cert) {
		t.Error("another key has the same pin")
	}
}

func TestPinText(t *testing.T) {
	var got struct{ Pins []Pin }
	if err := json.Unmarshal([]byte(`{"Pins":["`+strings.ToUpper(somePin)+`"]}`), &got); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(got)
	if err != nil || string(out) != `{"Pins":["`+somePin+`"]}` {
		t.Errorf("%s, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"Pins":["sha256:"]}`), &got); !errors.Is(err, CheckPin) {
		t.Errorf("%v, want %v", err, CheckPin)
	}
}

func FuzzParsePin(f *testing.F) {
	for _, s := range []string{somePin, strings.ToUpper(somePin), "", "sha256:", "sha1:00", somePin + "00", "sha256:" + strings.Repeat("0", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePin(s)
		if (err == nil) == p.IsZero() {
			t.Fatalf("%q: %v, %v", s, p, err)
		}
		if err == nil && p.String() != strings.ToLower(s) {
			t.Fatalf("%q reads as %v", s, p)
		}
	})
}
