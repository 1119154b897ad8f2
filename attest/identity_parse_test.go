package attest

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/message"
)

const testDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseIdentity(t *testing.T) {
	good := []string{"ek:sha256:" + testDigest, "ak:sha256:" + testDigest, "gce:p/0", "aws:aws/us-east-2/i-0123456789abcdef0", "gce:example.com:p/18446744073709551615",
		"othername:1.2.3:MAA", "othername:2.25.274969308675442717258829974567625345604:BQA", "othername:ca-1.example/1.2.3:MAA", "row:7", "a-1:x:y/z",
		"gce:p", "hwserial:x", "azure:X/y", "a0:x", "z9:x", "a::x", "sha:1", "x:" + strings.Repeat("y", message.MaxIdentitySize-2)}
	for _, s := range good {
		if id, err := ParseIdentity(s); err != nil || string(id) != s {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
	for _, s := range []string{"", ":", "x", "x:", ":x", "X:y", "1x:y", "-:y", "`:y", "{:y", "a/:y", "a,:y", "a.:y", "a_:y", "aB:y", "x y:z", "x:y z", "x:y\n", "x:\xff", "x:" + strings.Repeat("y", message.MaxIdentitySize-1),
		"ek:" + testDigest, "sha256:00", "sha256:" + testDigest, "sha1:00", "sha384:00", "sha512:00", "ek:sha1:" + testDigest, "ek:sha256:" + testDigest + "00", "ek:sha256:" + testDigest[1:], "ak:sha256:" + strings.ToUpper(testDigest),
		"ek:sha256:" + strings.Repeat("g", 64),
		"othername:1.2.3", "othername:1.2.3:", "othername:1.02.3:MAA", "othername::MAA", "othername:1.2.3:MAA=", "othername:1.2.3:MA+", "othername:1.2.3:MAB",
		"othername:1.2.3:MA\nA", "othername:1.2.3:MAA\r\n", "othername:CA/1.2.3:MAA", "othername:/1.2.3:MAA", "othername:ca:1/1.2.3:MAA", "othername:a/b/1.2.3:MAA",
		"othername:" + strings.Repeat("a", 64) + "/1.2.3:MAA"} {
		if id, err := ParseIdentity(s); !errors.Is(err, CheckIdentity) {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
}

// A road holds identities to its own grammars, and knows no other kinds.
func TestIdentitiesOfRoads(t *testing.T) {
	road := &OpenRoad{Identities: []Grammar{{Kind: "ek"}, {Kind: "row"}, {Kind: "vm", Parse: func(id Identity) (Identity, error) {
		switch id {
		case "vm:a", "vm:A":
			return "vm:a", nil
		}
		return "", CheckIdentity.Refuse(string(id), "vm:a")
	}}}}
	for id, want := range map[Identity]Identity{"ek:sha256:" + testDigest: "ek:sha256:" + testDigest, "row:7": "row:7", "vm:a": "vm:a", "vm:A": "vm:a",
		"vm:b": "", "vm:": "", "vm": "", "": "", "row:": "", "row:a b": "", "ROW:7": "", "rows:7": "", "ek:sha256:0": "", "ek:x": "",
		"ak:sha256:" + testDigest: "", "othername:1.2.3:MAA": "", "sha256:00": ""} {
		t.Run(string(id), func(t *testing.T) {
			got, err := road.ParseIdentity(id)
			if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, CheckIdentity) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
	if _, err := new(OpenRoad).ParseIdentity("row:7"); !errors.Is(err, CheckIdentity) {
		t.Errorf("of a road without identities: %v", err)
	}
}

// FuzzParseIdentity: a parsed identity equals its text, has a kind and contains no space.
func FuzzParseIdentity(f *testing.F) {
	for _, s := range []string{"", "ek:sha256:" + testDigest, "sha256:" + testDigest, "gce:p/0", "othername:ca-1.example/1.2.3:MAA", "a-1:x:y/z", "x: y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseIdentity(s)
		if err != nil {
			if !errors.Is(err, CheckIdentity) || id != "" {
				t.Fatalf("%q: %q, %v", s, id, err)
			}
			return
		}
		if string(id) != s || !id.Valid() || !validKind(id.Kind()) || len(strings.Fields(s)) != 1 {
			t.Fatalf("%q is read as %q", s, id)
		}
	})
}
