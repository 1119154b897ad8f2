package attest

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func challengeMessage(b []byte) string { return ChallengeDecision(b, nil).Message }

// A challenge is a denial that the node reads; without one nothing is denied that the error does
// not deny.
func TestChallengeDecision(t *testing.T) {
	refused, undecided := NotMember("x"), refusal.Retry(errors.New("db"))
	others := &Error{Check: "hello-signer", Err: refusal.Retry(csr.ErrOtherSigner)}
	for name, c := range map[string]struct {
		challenge []byte
		err       error
		want      csr.UnplacedDecision
	}{
		"neither":                   {nil, nil, csr.Decide(nil)},
		"an empty challenge":        {[]byte{}, nil, csr.Decide(nil)},
		"a refusal":                 {nil, refused, csr.Decide(refused)},
		"no decision":               {nil, undecided, csr.Decide(undecided)},
		"another party's request":   {nil, others, csr.Decide(others)},
		"a challenge and a refusal": {[]byte{1}, refused, csr.Decide(refused)},
		"a challenge and no answer": {[]byte{1}, undecided, csr.Decide(undecided)},
	} {
		t.Run(name, func(t *testing.T) {
			got := ChallengeDecision(c.challenge, c.err)
			if !reflect.DeepEqual(got, c.want) || got.Reason == message.ReasonChallenge {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	for name, want := range map[string]csr.Verdict{"neither": csr.VerdictRetry, "others": csr.VerdictIgnore} {
		if got := ChallengeDecision(nil, map[string]error{"others": others}[name]).Verdict; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if d := ChallengeDecision([]byte{1}, nil).For(&csr.Request{}); d.Verdict != csr.VerdictDeny || d.Reason != message.ReasonChallenge || d.Message != "AQ==" ||
		d.Condition != csr.ConditionDenied || d.Subresource != csr.SubresourceApproval {
		t.Errorf("a challenge: %+v", d)
	}
}

func TestChallengeMessage(t *testing.T) {
	data := bytes.Repeat([]byte{7}, 300)
	got, err := parseChallengeMessage(challengeMessage(data))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%v, %x", err, got)
	}
	text := challengeMessage([]byte{1, 2, 3, 4})
	for name, bad := range map[string]string{
		"no padding": strings.TrimRight(text, "="),
		"line break": text[:4] + "\n" + text[4:],
		"space":      text + " ",
		"other bits": "AQIDBB==",
		"url":        "-_-_",
		"more":       text + text,
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
	testkit.BeginFuzz(f)
	f.Add(challengeMessage([]byte{1, 2, 3, 4}))
	f.Add("AQID")
	f.Add("") // never made: an empty message is not a challenge
	f.Fuzz(func(t *testing.T, message string) {
		data, err := parseChallengeMessage(message)
		if err == nil && message != "" && challengeMessage(data) != message {
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
