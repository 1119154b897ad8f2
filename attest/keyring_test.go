package attest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

var ringTime = time.Unix(1_800_000_000, 0).UTC()

func TestKeyRingRefuses(t *testing.T) {
	good := NewRingKey(ringTime)
	noSecret, noTime, reversed := good, good, good
	noSecret.Secret = secret.New([message.SecretSize]byte{})
	noTime.ActiveAt = time.Time{}
	reversed.RetiredAt = ringTime.Add(-time.Second)
	for name, keys := range map[string][]RingKey{
		"none": nil, "twice": {good, good}, "no secret": {noSecret}, "no time": {noTime}, "reversed": {reversed},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newKeyRing(keys, ringTime); err == nil {
				t.Errorf("%s: a ring", name)
			}
			if _, err := NewStaticKeyRing(keys...); err == nil {
				t.Errorf("%s: a static ring", name)
			}
			if _, err := MarshalRingKeys(keys); err == nil {
				t.Errorf("%s: encoded", name)
			}
		})
	}
	if _, err := newKeyRing([]RingKey{good}, time.Time{}); err == nil {
		t.Error("a ring that was never read")
	}
}

func TestKeyRingRefresh(t *testing.T) {
	first, second := NewRingKey(ringTime), NewRingKey(ringTime.Add(time.Minute))
	ring := testkit.Must(newKeyRing([]RingKey{first}, ringTime))
	if err := ring.Refresh([]RingKey{second}, ringTime.Add(-time.Second)); err == nil {
		t.Error("an older reading was taken")
	}
	if err := ring.Refresh(nil, ringTime.Add(time.Second)); err == nil {
		t.Error("an empty reading was taken")
	}
	if k, err := ring.newest(ringTime); err != nil || k.ID != first.ID {
		t.Errorf("after refused readings: %v, %v", k, err)
	}
	testkit.NoError(t, ring.Refresh([]RingKey{first, second}, ringTime.Add(time.Minute)))
	for at, want := range map[time.Duration][8]byte{0: first.ID, time.Minute: second.ID} {
		if k, err := ring.newest(ringTime.Add(at)); err != nil || k.ID != want {
			t.Errorf("newest after %s: %v, %v, want %s", at, k, err, want)
		}
	}
	if _, err := ring.newest(ringTime.Add(time.Minute + message.MaxRingAge)); err != nil {
		t.Errorf("at the greatest age: %v", err)
	}
	if _, err := ring.newest(ringTime.Add(time.Minute + message.MaxRingAge + 1)); !errors.Is(err, checkRingStale) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("over it: %v", err)
	}
	static := testkit.Must(NewStaticKeyRing(first))
	if _, err := static.newest(ringTime.Add(1e6 * time.Hour)); err != nil {
		t.Errorf("a static ring grew stale: %v", err)
	}
	if err := static.Refresh([]RingKey{second}, ringTime); err == nil {
		t.Error("a static ring was refreshed")
	}
}

// retiredAt ≤ now is retired; a key of the next minute may be that of a replica
// whose clock is ahead, and one of later is refused.
func TestKeyRingLookup(t *testing.T) {
	key := NewRingKey(ringTime)
	key.RetiredAt = ringTime.Add(time.Hour)
	ring := testkit.Must(NewStaticKeyRing(key))
	for at, want := range map[time.Duration]struct{ refused, retry bool }{
		-61 * time.Second:         {true, false},
		-60 * time.Second:         {true, true},
		-time.Second:              {true, true},
		0:                         {false, false},
		time.Hour - time.Second:   {false, false},
		time.Hour:                 {true, false},
		time.Hour + 1*time.Second: {true, false},
	} {
		_, err := ring.lookup(key.ID, ringTime.Add(at))
		if errors.Is(err, checkRingKey) != want.refused || errors.Is(err, refusal.ErrRetry) != want.retry {
			t.Errorf("after %s: %v", at, err)
		}
	}
	if _, err := ring.lookup([8]byte{}, ringTime); !errors.Is(err, checkRingKey) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestRotateKeys(t *testing.T) {
	old := NewRingKey(ringTime)
	keys, isNew := RotateKeys([]RingKey{old}, ringTime, 0)
	if !isNew || len(keys) != 2 || !old.RetiredAt.IsZero() {
		t.Fatalf("%d keys, the old one changed to %v", len(keys), old.RetiredAt)
	}
	next := keys[1]
	if wait := next.ActiveAt.Sub(ringTime); wait < message.MaxRingAge {
		t.Errorf("the new key is active after %s, before every replica has read it", wait)
	}
	if over := keys[0].RetiredAt.Sub(next.ActiveAt); over != 2*time.Hour {
		t.Errorf("the old key is retired %s after its successor became active, want 2h", over)
	}
	later, isNew := RotateKeys(keys, keys[0].RetiredAt, time.Hour)
	if !isNew || len(later) != 2 || later[0].ID != next.ID {
		t.Errorf("the retired key was kept: %v", later)
	}
	if _, err := NewStaticKeyRing(later...); err != nil {
		t.Error(err)
	}
}

// With a rotation once a day: which keys are replaced, and which are retired when.
func TestRotateKeysWhenDue(t *testing.T) {
	const day = 24 * time.Hour
	latest := 2*message.MaxRingAge + clockSkew
	at := func(active, retired time.Duration) RingKey {
		k := NewRingKey(ringTime.Add(active))
		if retired != 0 {
			k.RetiredAt = ringTime.Add(retired)
		}
		return k
	}
	for name, c := range map[string]struct {
		keys []RingKey
		due  bool
		ends []time.Duration // of all but the new one, 0: none
	}{
		"none":                        {nil, true, nil},
		"in use":                      {[]RingKey{at(-day+time.Second, 0)}, false, nil},
		"in use for a day":            {[]RingKey{at(-day, 0)}, true, []time.Duration{2*message.MaxRingAge + 2*time.Hour}},
		"the next one waits":          {[]RingKey{at(-day, 2*time.Hour), at(2*message.MaxRingAge, 0)}, false, nil},
		"it waits for a clock behind": {[]RingKey{at(latest, 0)}, false, nil},
		"of a clock ahead":            {[]RingKey{at(latest+time.Second, 0)}, true, []time.Duration{0}},
		"retired in use":              {[]RingKey{at(-time.Hour, -time.Second)}, true, nil},
		"with one of a clock ahead":   {[]RingKey{at(-time.Hour, 10*365*day), at(10*365*day, 0)}, false, nil},
		"kept alive by a clock ahead": {[]RingKey{at(-day, 10*365*day), at(10*365*day, 0)}, true, []time.Duration{2*message.MaxRingAge + 2*time.Hour, 0}},
		"about to be retired":         {[]RingKey{at(-2*day, time.Minute), at(-day, 0)}, true, []time.Duration{time.Minute, 2*message.MaxRingAge + 2*time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			got, due := RotateKeys(c.keys, ringTime, day)
			if due != c.due || due && len(got) != len(c.ends)+1 || !due && len(got) != len(c.keys) {
				t.Fatalf("got %d keys, due %t, want %t and ends %v", len(got), due, c.due, c.ends)
			}
			if err := checkRingKeys(got); err != nil {
				t.Error(err)
			}
			for i, end := range c.ends {
				want := time.Time{}
				if end != 0 {
					want = ringTime.Add(end)
				}
				if !got[i].RetiredAt.Equal(want) {
					t.Errorf("key %d is retired at %v, want %v", i, got[i].RetiredAt, want)
				}
			}
			if due && !got[len(got)-1].ActiveAt.Equal(ringTime.Add(2*message.MaxRingAge)) {
				t.Errorf("the new key is active at %v", got[len(got)-1].ActiveAt)
			}
		})
	}
}

func TestEncodeKeys(t *testing.T) {
	a, b := NewRingKey(ringTime), NewRingKey(ringTime.Add(time.Second))
	b.RetiredAt = ringTime.Add(time.Hour)
	data := testkit.Must(MarshalRingKeys([]RingKey{a, b}))
	back, err := ParseRingKeys(data)
	same := cmp.Comparer(func(x, y secret.Value[[message.SecretSize]byte]) bool { return x.Reveal() == y.Reveal() })
	if diff := cmp.Diff([]RingKey{a, b}, back, same); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	name, value := hexID(a.ID), data[hexID(a.ID)]
	for what, bad := range map[string]map[string][]byte{
		"nothing":         {},
		"short name":      {name[:14]: value},
		"upper-case name": {strings.ToUpper("ab" + name[2:]): value},
		"no key":          {"zz" + name[2:]: value},
		"short value":     {name: value[:47]},
		"long value":      {name: append(bytes.Clone(value), 0)},
		"no time":         {name: append(append(bytes.Clone(value[:32]), make([]byte, 8)...), value[40:]...)},
		"time too late":   {name: append(append(bytes.Clone(value[:32]), bytes.Repeat([]byte{0xff}, 8)...), value[40:]...)},
		"no secret":       {name: append(make([]byte, 32), value[32:]...)},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := ParseRingKeys(bad)
			if err == nil {
				t.Errorf("%s: accepted", what)
			} else if strings.Contains(err.Error(), hex.EncodeToString(revealed(&a)[:4])) {
				t.Errorf("%s: the error shows the secret", what)
			}
		})
	}
}

// TestNoKeys leaves out entries whose names cannot be identifiers, and no others.
func TestNoKeys(t *testing.T) {
	key := NewRingKey(ringTime)
	data := testkit.Must(MarshalRingKeys([]RingKey{key}))
	for i := range maxRingKeys {
		data[fmt.Sprintf("README.%d", i)] = data[hexID(key.ID)]
	}
	if keys, err := ParseRingKeys(data); err != nil || len(keys) != 1 || keys[0].ID != key.ID {
		t.Fatalf("got %d keys, %v", len(keys), err)
	}
	for _, name := range []string{"", "0", "cafe", strings.ToUpper("ab" + hexID(key.ID)[2:]), "ab" + hexID(key.ID)} {
		changed := maps.Clone(data)
		changed[name] = data[hexID(key.ID)]
		if keys, err := ParseRingKeys(changed); err == nil {
			t.Errorf("%q, which may be a key, was left out: %d keys", name, len(keys))
		}
	}
}

func revealed(k *RingKey) []byte {
	key := k.Secret.Reveal()
	return key[:]
}

// A ring that is stored as JSON would lose its secrets, so storing it is an error.
func TestKeysAreNotJSON(t *testing.T) {
	keys := []RingKey{NewRingKey(ringTime)}
	for name, v := range map[string]any{"a key": keys[0], "a pointer": &keys[0], "keys": keys, "in a struct": struct{ Keys []RingKey }{keys}} {
		if text, err := json.Marshal(v); err == nil || !strings.Contains(err.Error(), "MarshalRingKeys") {
			t.Errorf("%s: got %s, %v, want an error that names MarshalRingKeys", name, text, err)
		}
	}
	data := testkit.Must(MarshalRingKeys(keys))
	if text, err := json.Marshal(data); err != nil {
		t.Errorf("what MarshalRingKeys returns: %s, %v", text, err)
	}
}

// The two derivations are HMAC-SHA256 over label, 00 and the binding; the values are those of
// Python's hmac.
func TestDerivations(t *testing.T) {
	key := RingKey{Secret: secret.New([message.SecretSize]byte(bytes.Repeat([]byte{1}, 32)))}
	s := key.challengeSecret("tpm/v1", []byte("b"))
	if got, want := hex.EncodeToString(s), "9bf1b16336505ee258336661ebf7962673d3d368cea93812f3072d1bee4a6148"; got != want {
		t.Errorf("S is %s, want %s", got, want)
	}
	if got, want := hex.EncodeToString(message.QualifyingData(s, "tpm/v1", "certify", []byte("b"))), "a084558839252b93862894aa6b9be5b4be0aaa964115e7dc95cfc09ec28c7291"; got != want {
		t.Errorf("qualifying data is %s, want %s", got, want)
	}
}

func FuzzParseRingKeys(f *testing.F) {
	data := testkit.Must(MarshalRingKeys([]RingKey{NewRingKey(ringTime)}))
	for name, value := range data {
		f.Add(name, value)
	}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		keys, err := ParseRingKeys(map[string][]byte{name: value})
		if err != nil {
			return
		}
		back, err := MarshalRingKeys(keys)
		if err != nil || !bytes.Equal(back[name], value) {
			t.Errorf("%x is read and written as %x, %v", value, back[name], err)
		}
	})
}

// newKeyRing is a ring that was read at a time.
func newKeyRing(keys []RingKey, readAt time.Time) (*KeyRing, error) {
	r := &KeyRing{}
	if err := r.Refresh(keys, readAt); err != nil {
		return nil, err
	}
	return r, nil
}

// A ring that has not been read is good for making a verifier, and for nothing else
// until it has been read.
func TestUnreadKeyRing(t *testing.T) {
	ring, key := new(KeyRing), NewRingKey(ringTime)
	check := func(t *testing.T, want error) {
		t.Helper()
		_, newest := ring.newest(ringTime)
		_, lookup := ring.lookup(key.ID, ringTime)
		for _, err := range []error{newest, lookup} {
			if !errors.Is(err, want) || want != nil && !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, want %v to be tried again", err, want)
			}
		}
	}
	t.Run("unread", func(t *testing.T) { check(t, checkRingStale) })
	for name, bad := range map[string]struct {
		keys   []RingKey
		readAt time.Time
	}{
		"an empty reading":           {nil, ringTime},
		"a reading without its time": {[]RingKey{key}, time.Time{}},
		"neither":                    {nil, time.Time{}},
		"an invalid reading":         {[]RingKey{key, key}, ringTime},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ring.Refresh(bad.keys, bad.readAt); err == nil {
				t.Error("taken")
			}
			if _, err := newKeyRing(bad.keys, bad.readAt); err == nil {
				t.Error("a ring was made of it")
			}
			check(t, checkRingStale)
		})
	}
	t.Run("read", func(t *testing.T) {
		testkit.NoError(t, ring.Refresh([]RingKey{key}, ringTime))
		check(t, nil)
	})
	t.Run("not read again", func(t *testing.T) {
		if _, err := ring.newest(ringTime.Add(message.MaxRingAge + 1)); !errors.Is(err, checkRingStale) {
			t.Errorf("got %v", err)
		}
	})
}

// A reading is used from a minute before it, as clocks differ, to its largest age, each
// exactly.
func TestAgesOfReadings(t *testing.T) {
	ring := testkit.Must(newKeyRing([]RingKey{NewRingKey(ringTime.Add(-24 * time.Hour))}, ringTime))
	for at, good := range map[time.Duration]bool{-clockSkew - 1: false, -clockSkew: true, 0: true, message.MaxRingAge: true, message.MaxRingAge + 1: false} {
		_, err := ring.fresh(ringTime.Add(at))
		if good != (err == nil) || !good && !errors.Is(err, checkRingStale) {
			t.Errorf("%v after it: %v", at, err)
		}
	}
}

// A retired key makes no challenge, even if it is the newest.
func TestNewestKeyIsRetired(t *testing.T) {
	old, newer := NewRingKey(ringTime.Add(-2*time.Hour)), NewRingKey(ringTime.Add(-time.Hour))
	newer.RetiredAt = ringTime.Add(-time.Minute)
	ring := testkit.Must(newKeyRing([]RingKey{old, newer}, ringTime))
	if k, err := ring.newest(ringTime); err != nil || k.ID != old.ID {
		t.Errorf("got %v, %v", k, err)
	}
	old.RetiredAt = newer.RetiredAt
	ring = testkit.Must(newKeyRing([]RingKey{old, newer}, ringTime))
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

// A claimed provider ID is a fact of its own, unless it was granted.
func TestClaimsOfResults(t *testing.T) {
	for name, c := range map[string]struct {
		claimed, vouched string
		want             int
	}{"nothing": {"", "", 0}, "nothing, vouched": {"", "p", 0}, "the granted one": {"p", "p", 0}, "something": {"p", "", 1}, "something else": {"p", "q", 1}} {
		t.Run(name, func(t *testing.T) {
			r := &Result{ClaimedProviderID: csr.NewClaimed(c.claimed), Granted: csr.Grant{ProviderID: c.vouched}}
			if got := r.Facts()[1:]; len(got) != c.want {
				t.Errorf("%s: %v", name, got)
			}
		})
	}
}
