package attest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/der"
)

func challengeMessage(b []byte) string { return ChallengeDecision(b).Message }

func TestChallengeMessage(t *testing.T) {
	data := bytes.Repeat([]byte{7}, 300)
	got, err := parseChallengeMessage(challengeMessage(data))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%v, %x", err, got)
	}
	message := challengeMessage([]byte{1, 2, 3, 4})
	for name, bad := range map[string]string{
		"no padding": strings.TrimRight(message, "="),
		"line break": message[:4] + "\n" + message[4:],
		"space":      message + " ",
		"other bits": "AQIDBB==",
		"url":        "-_-_",
		"more":       message + message,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseChallengeMessage(bad); !errors.Is(err, der.CheckEncoding) {
				t.Errorf("%s: got %v, want %v", name, err, der.CheckEncoding)
			}
		})
	}
	if _, err := parseChallengeMessage(strings.Repeat("A", 30<<10)); !errors.Is(err, der.CheckSize) {
		t.Errorf("long: got %v, want %v", err, der.CheckSize)
	}
}

func FuzzParseChallengeMessage(f *testing.F) {
	f.Add(challengeMessage([]byte{1, 2, 3, 4}))
	f.Add("AQID")
	f.Fuzz(func(t *testing.T, message string) {
		data, err := parseChallengeMessage(message)
		if err == nil && challengeMessage(data) != message {
			t.Errorf("not canonical: %q", message)
		}
	})
}

// The message of a condition: exactly as long as the largest challenge, and one
// character more.
func TestSizesOfChallengeMessages(t *testing.T) {
	largest := challengeMessage(make([]byte, der.MaxChallengeSize))
	if data, err := parseChallengeMessage(largest); err != nil || len(data) != der.MaxChallengeSize {
		t.Errorf("the largest: %d bytes, %v", len(data), err)
	}
	_, err := parseChallengeMessage(largest + "A")
	if !errors.Is(err, der.CheckSize) {
		t.Errorf("got %v, want %v", err, der.CheckSize)
	}
	_, err = parseChallengeMessage(largest + "AAAA")
	if !errors.Is(err, der.CheckSize) {
		t.Errorf("got %v, want %v", err, der.CheckSize)
	}
	for name, message := range map[string]string{
		"no base64": "%%%%", "not padded": "AA", "cut": "AAAAA", "broken by a line": "AAAA\nAAAA", "bits left over": "AB==",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseChallengeMessage(message)
			if !errors.Is(err, der.CheckEncoding) {
				t.Errorf("got %v, want %v", err, der.CheckEncoding)
			}
		})
	}
}
