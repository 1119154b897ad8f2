package jwstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// patience is how long a call may go on after its context has ended.
const patience = 5 * time.Second

// maxPayload is the maximum length in bytes of a payload that a jws.Signer signs.
const maxPayload = 2 << 20

// callsAtOnce is how many calls are made at the same time.
const callsAtOnce = 8

// TestSigner checks that a signer keeps the contract of jws.Signer, and of jws.KeySigner and jws.KeySet if
// it implements them. Tokens of several payloads, signed one by one and at once, verify with the key
// that comes with each, whose ID is in the header, and the payload is not changed; a payload of
// 2,097,153 bytes is an error; a call whose context has ended signs or fails with refusal.ErrRetry,
// within 5 seconds. It signs some twenty tokens.
//
// The error lists every check that failed. It is nil if none did.
func TestSigner(ctx context.Context, signer jws.Signer) error {
	if signer == nil {
		return errors.New("jwstest: got no signer, want one")
	}
	var c checks
	for name, payload := range map[string]string{
		"an empty payload": "", "claims": `{"sub":"a"}`, "bytes that are not UTF-8": "\xff\x00\n.", "a payload of 16,384 bytes": strings.Repeat("a", 16<<10),
	} {
		c.check(name, func() error { return signs(ctx, signer, []byte(payload)) })
	}
	c.check("calls at once", func() error {
		return atOnce(func(i int) error { return signs(ctx, signer, fmt.Appendf(nil, `{"jti":"%d"}`, i)) })
	})
	c.check("a payload of 2,097,153 bytes", func() error {
		if _, err := signer.Sign(ctx, make([]byte, maxPayload+1)); err == nil {
			return errors.New("got a signature, want an error")
		}
		return nil
	})
	c.check("a context that has ended", func() error {
		return ended(ctx, func(ctx context.Context) error {
			_, err := signer.Sign(ctx, []byte("{}"))
			return err
		})
	})
	return c.err("signer")
}

// signs signs a payload and verifies the token, as anyone would who knows the key alone.
func signs(ctx context.Context, signer jws.Signer, payload []byte) error {
	given := bytes.Clone(payload)
	signature, err := signer.Sign(ctx, payload)
	switch {
	case err != nil:
		return err
	case signature == nil || signature.Key == nil:
		return errors.New("got no signature or none with a key, and no error")
	case !bytes.Equal(given, payload):
		return errors.New("the payload of the caller was changed")
	}
	token, err := jws.Parse(signature.Token(payload))
	if err != nil {
		return err
	}
	if err := signature.Key.Verify(token); err != nil {
		return err
	}
	if token.KeyID() != signature.Key.KeyID() {
		return fmt.Errorf("got a header with the key ID %q, want that of the key, %q", token.KeyID(), signature.Key.KeyID())
	}
	if one, ok := signer.(jws.KeySigner); ok && !same(one.Key(), signature.Key) {
		return fmt.Errorf("got a signature with the key %s, want %s, which Key returns", name(signature.Key), name(one.Key()))
	}
	if set, ok := signer.(jws.KeySet); ok {
		if _, err := token.VerifySignature(ctx, set); err != nil {
			return fmt.Errorf("with the signer as the key set: %w", err)
		}
	}
	return nil
}

// TestKeySet checks that a key set keeps the contract of jws.KeySet. known are keys of the set, at
// least one: each is found by its key ID and among all keys. All keys found by an ID have it, no key is
// nil, and no two have one ID and algorithm; an unknown ID, be it of 1 MiB, has no keys and no error;
// calls at once have the same answers; a call whose context has ended has an answer or fails with
// refusal.ErrRetry, within 5 seconds.
//
// The error lists every check that failed. It is nil if none did.
func TestKeySet(ctx context.Context, set jws.KeySet, known ...*jws.Key) error {
	if set == nil || len(known) == 0 || slices.ContainsFunc(known, func(k *jws.Key) bool { return k == nil || k.Public() == nil }) {
		return errors.New("jwstest: got no key set, or no key that it has, want both")
	}
	var c checks
	c.check("all keys", func() error { return has(ctx, set, "", known) })
	for _, key := range known {
		c.check("the key "+name(key), func() error { return has(ctx, set, key.KeyID(), []*jws.Key{key}) })
	}
	first := known[0].KeyID()
	for name, keyID := range map[string]string{
		"an unknown key ID": "no key has this ID", "a key ID of 1 MiB": strings.Repeat("k", 1<<20),
		"a known key ID and one byte": first + "\x00", "a known key ID but for its last byte": first[:len(first)-1] + "\x00",
	} {
		c.check(name, func() error {
			keys, err := set.Keys(ctx, keyID)
			if len(keys) > 0 {
				return fmt.Errorf("got %d keys, want none", len(keys))
			}
			return err
		})
	}
	c.check("calls at once", func() error {
		return atOnce(func(i int) error {
			key := known[i%len(known)]
			return errors.Join(has(ctx, set, key.KeyID(), []*jws.Key{key}), has(ctx, set, "", known))
		})
	})
	c.check("a context that has ended", func() error {
		return ended(ctx, func(ctx context.Context) error {
			_, err := set.Keys(ctx, known[0].KeyID())
			return err
		})
	})
	return c.err("key set")
}

// has checks the keys that a set has for an ID.
func has(ctx context.Context, set jws.KeySet, keyID string, want []*jws.Key) error {
	keys, err := set.Keys(ctx, keyID)
	if err != nil {
		return err
	}
	for i, key := range keys {
		switch {
		case key == nil:
			return errors.New("got a nil key")
		case keyID != "" && key.KeyID() != keyID:
			return fmt.Errorf("got the key %s, want only those with the ID %s", name(key), keyID)
		case slices.ContainsFunc(keys[:i], func(k *jws.Key) bool { return k.KeyID() == key.KeyID() && k.Algorithm() == key.Algorithm() }):
			return fmt.Errorf("got two keys %s", name(key))
		}
	}
	for _, key := range want {
		if !slices.ContainsFunc(keys, func(k *jws.Key) bool { return same(k, key) }) {
			return fmt.Errorf("got %d keys, want %s among them", len(keys), name(key))
		}
	}
	return nil
}

// same reports whether two keys verify the same tokens.
func same(a, b *jws.Key) bool {
	one, err := a.MarshalJSON()
	other, otherErr := b.MarshalJSON()
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}

// name is how errors call a key.
func name(key *jws.Key) string {
	if key == nil {
		return "nil"
	}
	return fmt.Sprintf("%q for %s", key.KeyID(), key.Algorithm())
}

// atOnce makes calls at the same time and joins their errors, each once.
func atOnce(call func(i int) error) error {
	var calls [callsAtOnce]<-chan error
	for i := range calls {
		calls[i] = recovered.Go(func() error { return call(i) })
	}
	var all []error
	for _, answer := range calls {
		err := <-answer
		if err != nil && !slices.ContainsFunc(all, func(other error) bool { return other.Error() == err.Error() }) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// ended makes a call with a context that has ended.
func ended(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	select {
	case err := <-recovered.Go(func() error { return call(ctx) }):
		if err != nil && !errors.Is(err, refusal.ErrRetry) {
			return fmt.Errorf("want one in which errors.Is finds refusal.ErrRetry, got %w", err)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the call has not returned after %v", patience)
	}
}

// checks are the failures of the checks so far.
type checks []error

// check makes one check. A panic is a failure.
func (c *checks) check(name string, f func() error) {
	if err := recovered.Call(f); err != nil {
		*c = append(*c, fmt.Errorf("%s: %w", name, err))
	}
}

// err joins the failures, in the order of their names.
func (c checks) err(of string) error {
	if len(c) == 0 {
		return nil
	}
	slices.SortFunc(c, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return fmt.Errorf("jwstest: this %s does not do as its interface says:\n%w", of, errors.Join(c...))
}
