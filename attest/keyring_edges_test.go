package attest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// A reading is used from a minute before it, as clocks differ, to its largest age, each
// exactly.
func TestAgesOfReadings(t *testing.T) {
	ring, err := newKeyRing([]RingKey{NewRingKey(ringTime.Add(-24 * time.Hour))}, ringTime)
	if err != nil {
		t.Fatal(err)
	}
	for at, good := range map[time.Duration]bool{-clockSkew - 1: false, -clockSkew: true, 0: true, message.MaxRingAge: true, message.MaxRingAge + 1: false} {
		_, err := ring.fresh(ringTime.Add(at))
		if good != (err == nil) || !good && !errors.Is(err, checkRingStale) {
			t.Errorf("%v after it: %v", at, err)
		}
	}
}

// A key that is retired makes no challenge, though it is the newest.
func TestNewestKeyIsRetired(t *testing.T) {
	old, newer := NewRingKey(ringTime.Add(-2*time.Hour)), NewRingKey(ringTime.Add(-time.Hour))
	newer.RetiredAt = ringTime.Add(-time.Minute)
	ring, err := newKeyRing([]RingKey{old, newer}, ringTime)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := ring.newest(ringTime); err != nil || k.ID != old.ID {
		t.Errorf("got %v, %v", k, err)
	}
	old.RetiredAt = newer.RetiredAt
	if ring, err = newKeyRing([]RingKey{old, newer}, ringTime); err != nil {
		t.Fatal(err)
	}
	if k, err := ring.newest(ringTime); !errors.Is(err, checkRingEmpty) || !errors.Is(err, refusal.ErrRetry) || k != nil {
		t.Errorf("all are retired: %v, %v", k, err)
	}
}

func TestTextsOfIdentities(t *testing.T) {
	digest := strings.Repeat("ab", message.HashSize)
	for text, good := range map[string]bool{
		"ek:sha256:" + digest: true, "ak:sha256:" + digest: true, "gce:project/1": true, "gce:project": true, "aws:1/i-1": true, "a9-:x": true,
		"ek:sha256:" + digest + "a": false, "ek:sha256:" + digest + "zz": false, "ek:sha256:" + digest[:62]: false, "ek:sha256:" + digest + "ab": false,
		"ek:sha256:" + strings.ToUpper(digest): false, "ek:" + digest: false, ":x": false, "x": false, "": false, ":": false, "a:": false,
		"9a:x": false, "-a:x": false, "A:x": false, "a/:x": false, "othername:1.2.3:AA": true, "othername:1.2.3:": false, "othername:1.2.3:A\nA": false,
	} {
		t.Run(text, func(t *testing.T) {
			id, err := ParseIdentity(text)
			if good != (err == nil) || good != (id != "") {
				t.Errorf("%q: %v", text, err)
			}
		})
	}
	for id, want := range map[Identity]bool{":abc": false, "abc": false, "a:": false, "a:b": true, "": false, ":": false} {
		if id.Valid() != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
}

// What a node claims is shown where it claims something that nobody vouched for.
func TestClaimsOfResults(t *testing.T) {
	for name, c := range map[string]struct {
		claimed, vouched string
		want             int
	}{"nothing": {"", "", 0}, "nothing, vouched": {"", "p", 0}, "what is vouched for": {"p", "p", 0}, "something": {"p", "", 1}, "something else": {"p", "q", 1}} {
		t.Run(name, func(t *testing.T) {
			r := &Result{ClaimedProviderID: csr.Claimed(c.claimed), Granted: csr.Grant{ProviderID: c.vouched}}
			if got := r.Facts()[1:]; len(got) != c.want {
				t.Errorf("%s: %v", name, got)
			}
		})
	}
}
