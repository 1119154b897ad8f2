package keys

import (
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// own are a signer's own published keys in the order of jws.RotatingSigner.Published.
type own []jws.PublishedKey

// next returns the key that is to sign next, or nil.
func (o own) next() *jws.PublishedKey {
	if len(o) < 2 || o[1].SignsFrom.IsZero() {
		return nil
	}
	return &o[1]
}

// find returns the published key with that ID, or nil.
func (o own) find(keyID string) *jws.PublishedKey {
	if i := slices.IndexFunc(o, func(k jws.PublishedKey) bool { return k.Key.KeyID() == keyID }); i >= 0 {
		return &o[i]
	}
	return nil
}

// retired returns the keys that no longer sign. One that was to sign next may have signed by the clock of
// another time: it stays published as if it had.
func (o own) retired(now time.Time, retain time.Duration) own {
	var all own
	for i, k := range o {
		switch {
		case i == 0:
			continue
		case !k.SignsFrom.IsZero():
			k = jws.PublishedKey{Key: k.Key, Until: latest(now, k.SignsFrom).Add(retain)}
		}
		if k.Until.After(now) {
			all = append(all, k)
		}
	}
	return all
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// follow returns the keys after wanted has become the key that is to sign, and whether that is a change.
//
// The first key of all signs at once. Another key than the one that signs is published, and signs once it
// has been for Publish. If wanted signs, or is the next, nothing changes but that another one is not the next
// any more: the old key was put back, or there were two changes in a short time.
func (o own) follow(wanted *jws.Key, now time.Time, publish, retain time.Duration) (own, bool, error) {
	if len(o) == 0 {
		return own{{Key: wanted}}, true, nil
	}
	next := o.next()
	if next != nil && same(next.Key, wanted) || next == nil && same(o[0].Key, wanted) {
		return o, false, nil
	}
	old := slices.DeleteFunc(o.retired(now, retain), func(k jws.PublishedKey) bool { return same(k.Key, wanted) })
	changed := own{o[0]}
	if !same(o[0].Key, wanted) {
		changed = append(changed, jws.PublishedKey{Key: wanted, SignsFrom: now.Add(publish)})
	}
	changed = append(changed, old...)
	return changed, true, changed.check()
}

// check refuses a key ID of two keys, and more keys than are published.
func (o own) check() error {
	for i, k := range o {
		if o[:i].find(k.Key.KeyID()) != nil {
			return checkKeyFile.Refuse("another key with the key ID "+refusal.Quote(k.Key.KeyID())+", which is published", "a key ID of its own: a new keyID in the configuration")
		}
	}
	if len(o) > 1+maxRetired {
		return checkKeyFile.Refuse("a new key next to "+strconv.Itoa(len(o)-1)+" that are published", "at most "+strconv.Itoa(maxRetired)+" that no longer sign")
	}
	return nil
}

// restart returns the keys of a state for a program that starts now: without revoked keys, and without
// those whose time is over. The key that was to sign next may have reached no verifier: rotator publishes it for
// Publish again.
func (o own) restart(wanted *jws.Key, revoked []string, now time.Time, publish, retain time.Duration) (own, error) {
	isRevoked := func(k jws.PublishedKey) bool { return isRevoked(revoked, k.Key) }
	lost := len(o) != 0 && isRevoked(o[0])
	if lost { // wanted signs in its place at once
		old := slices.DeleteFunc(o.retired(now, retain), func(k jws.PublishedKey) bool { return isRevoked(k) || same(k.Key, wanted) })
		o = append(own{{Key: wanted}}, old...)
		return o, o.check()
	}
	o = slices.DeleteFunc(slices.Clone(o), func(k jws.PublishedKey) bool {
		return isRevoked(k) || !k.Until.IsZero() && !k.Until.After(now)
	})
	o, _, err := o.follow(wanted, now, publish, retain)
	return o, err
}
