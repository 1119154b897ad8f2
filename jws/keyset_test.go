package jws

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestStaticKeySet(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	rs, err := NewKey(forgers()[RS256].signer.Public(), KeyOptions{KeyID: "rsa", Algorithm: RS256})
	if err != nil {
		t.Fatal(err)
	}
	ps, err := NewKey(forgers()[RS256].signer.Public(), KeyOptions{KeyID: "rsa", Algorithm: PS256})
	if err != nil {
		t.Fatal(err)
	}
	given := []*Key{a, rs, b, ps}
	set, err := NewStaticKeySet(given...)
	if err != nil {
		t.Fatal(err)
	}
	given[0] = nil // the set has its own
	for keyID, want := range map[string][]*Key{"": {a, rs, b, ps}, "a": {a}, "b": {b}, "rsa": {rs, ps}, "c": nil, "A": nil} {
		t.Run(keyID, func(t *testing.T) {
			if got, err := set.Keys(context.Background(), keyID); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q: %v, %v", keyID, got, err)
			}
		})
	}
}

// The header of a token names one key: the one of its algorithm among those of its ID.
func TestStaticKeySetOneIDTwoAlgorithms(t *testing.T) {
	keys := []*Key{forgers()[RS256].key, forgers()[PS256].key, forgers()[ES256].key}
	set, err := NewStaticKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range []Algorithm{RS256, PS256, ES256} {
		verified, err := VerifySignature(context.Background(), forgers()[algorithm].good(t), set)
		if err != nil || verified.Key.Algorithm() != algorithm {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
	_, err = VerifySignature(context.Background(), forgers()[ES384].good(t), set)
	refusedFor(t, "another algorithm", err, CheckAlgorithm)
}

func TestNewStaticKeySetRefuses(t *testing.T) {
	for name, keys := range map[string][]*Key{
		"none":                  nil,
		"nil":                   {nil},
		"nil among others":      {named(t, "a"), nil},
		"a zero key":            {new(Key)},
		"one key ID twice":      {named(t, "a"), named(t, "a")},
		"one key twice":         {forgers()[RS256].key, forgers()[RS256].key},
		"one key ID twice of 3": {named(t, "a"), named(t, "b"), named(t, "a")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewStaticKeySet(keys...)
			refusedFor(t, name, err, checkKeySet)
		})
	}
}

// Sets that nobody made refuse every token.
func TestStaticKeySetZero(t *testing.T) {
	for name, set := range map[string]*StaticKeySet{"zero": new(StaticKeySet), "nil": nil} {
		_, err := VerifySignature(context.Background(), forgers()[ES256].good(t), set)
		refusedFor(t, name, err, CheckKeyID)
	}
}

// A token of any of several control planes, each with a key of its own, verifies with the
// union that each of them publishes, before and after one of them takes a new key.
func TestUnionKeySetOfControlPlanes(t *testing.T) {
	now := newClock()
	config := RotationConfig{Publish: testPublish, Retain: testRetain, Now: now.Now}
	var planes []*RotatingSigner
	var sets []KeySet
	for _, id := range []string{"a", "b", "c"} {
		r, err := NewRotatingSigner(namedSigner(t, id), config)
		if err != nil {
			t.Fatal(err)
		}
		planes, sets = append(planes, r), append(sets, r)
	}
	union, err := NewUnionKeySet(namedSets(sets...)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planes[1].Rotate(namedSigner(t, "b2")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, plane := range planes {
			signature, err := plane.Sign(t.Context(), []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := VerifySignature(t.Context(), signature.Token([]byte("{}")), union); err != nil {
				t.Errorf("%s: %v", signature.Key.KeyID(), err)
			}
		}
		now.Advance(testPublish)
	}
	if keys, err := union.Keys(t.Context(), ""); err != nil || len(keys) != 4 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// failing is a set that cannot answer.
type failing struct{ err error }

func (f failing) Keys(context.Context, string) ([]*Key, error) { return nil, f.err }

func TestUnionKeySet(t *testing.T) {
	k, other, x := named(t, "k"), named(t, "k"), named(t, "x")
	underX, err := NewKey(k.Public(), KeyOptions{KeyID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	rs, ps := forgers()[RS256].key, forgers()[PS256].key
	down := errors.New("down")
	for name, test := range map[string]struct {
		sets  []KeySet
		keyID string
		want  []*Key
		err   error
	}{
		"all":                        {[]KeySet{oneKey{k}, oneKey{x}}, "", []*Key{k, x}, nil},
		"all, one in two sets":       {[]KeySet{oneKey{k}, oneKey{x, k}}, "", []*Key{k, x}, nil},
		"all, none":                  {[]KeySet{oneKey{}, oneKey{}}, "", nil, nil},
		"all, one ID for two":        {[]KeySet{oneKey{k}, oneKey{other}}, "", nil, checkKeySet},
		"all, a nil key first":       {[]KeySet{oneKey{nil}, oneKey{k}}, "", nil, checkKeySet},
		"all, one key under two IDs": {[]KeySet{oneKey{k}, oneKey{underX}}, "", []*Key{k, underX}, nil},
		"all, one key twice bound":   {[]KeySet{oneKey{rs}, oneKey{ps}}, "", []*Key{rs, ps}, nil},
		"all, a nil key":             {[]KeySet{oneKey{k}, oneKey{nil}}, "", nil, checkKeySet},
		"all, one cannot answer":     {[]KeySet{oneKey{k}, failing{down}}, "", nil, refusal.ErrRetry},
		"all, why":                   {[]KeySet{failing{down}, oneKey{k}}, "", nil, down},
		"of the first":               {[]KeySet{oneKey{k}, oneKey{other}}, "k", []*Key{k}, nil},
		"of the first, second fails": {[]KeySet{oneKey{k}, failing{down}}, "k", []*Key{k}, nil},
		"of the second, first fails": {[]KeySet{failing{down}, oneKey{k}}, "k", []*Key{k}, nil},
		"of none":                    {[]KeySet{oneKey{}, oneKey{}}, "k", nil, nil},
		"of none, one cannot answer": {[]KeySet{failing{down}, oneKey{}}, "k", nil, refusal.ErrRetry},
		"of none, the last cannot":   {[]KeySet{oneKey{}, failing{ErrClosed}}, "k", nil, ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			union, err := NewUnionKeySet(namedSets(test.sets...)...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := union.Keys(t.Context(), test.keyID)
			if !errors.Is(err, test.err) || len(got) != len(test.want) {
				t.Fatalf("got %v, %v, want %v, %v", got, err, test.want, test.err)
			}
			for i := range got {
				if !sameKey(got[i], test.want[i]) || got[i].Set() == "" || test.want[i].Set() != "" {
					t.Errorf("key %d: got %v, want %v", i, got[i], test.want[i])
				}
			}
		})
	}
}

// A set whose server hangs delays no look-up of a key that another set holds, nor one of a key that
// another set has to fetch, and a look-up of what nobody holds waits for each once.
func TestUnionKeySetHangs(t *testing.T) {
	held, fetched := named(t, "held"), named(t, "fetched")
	static, err := NewStaticKeySet(held)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		remote := func(fetch func(context.Context) ([]*Key, time.Duration, error)) *RemoteKeySet {
			s, err := NewRemoteKeySet(RemoteConfig{Fetch: fetch})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		hang := func(ctx context.Context) ([]*Key, time.Duration, error) { <-ctx.Done(); return nil, 0, ctx.Err() }
		slow := remote(func(context.Context) ([]*Key, time.Duration, error) {
			time.Sleep(time.Second)
			return []*Key{fetched}, 2 * time.Hour, nil
		})
		union, err := NewUnionKeySet(namedSets(remote(hang), remote(hang), slow, static)...)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(keyID string, want time.Duration, found int) {
			t.Helper()
			began := time.Now()
			keys, err := union.Keys(t.Context(), keyID)
			if waited := time.Since(began); waited > want || len(keys) != found || (err != nil) != (found == 0) {
				t.Errorf("%q: %d keys, %v after %v, want %d after at most %v", keyID, len(keys), err, waited, found, want)
			}
		}
		ask("held", 0, 1)
		ask("fetched", time.Second, 1)
		for range 60 {
			ask("held", 0, 1)
			ask("fetched", 0, 1)
			time.Sleep(time.Second)
		}
		ask("of nobody", defaultFetchTimeout, 0) // side by side
		time.Sleep(defaultMinRefetch)
		ask("", defaultFetchTimeout, 0)
	})
}

// waiting is a set that words the end of its context in its own way.
type waiting struct{ key *Key }

func (w waiting) Keys(ctx context.Context, _ string) ([]*Key, error) {
	if ctx.Err() != nil {
		return nil, refusal.Retry(errors.New("no time left"))
	}
	return []*Key{w.key}, nil
}

// TestUnionKeySetOwnWords: a set is asked again whatever it says when it may not wait.
func TestUnionKeySetOwnWords(t *testing.T) {
	key := named(t, "key")
	union, err := NewUnionKeySet(namedSets(waiting{key})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"key", ""} {
		if keys, err := union.Keys(t.Context(), id); err != nil || len(keys) != 1 {
			t.Errorf("%q: got %v, %v", id, keys, err)
		}
	}
}

// namedSets names sets by their position.
func namedSets(sets ...KeySet) []NamedKeySet {
	var named []NamedKeySet
	for i, set := range sets {
		named = append(named, NamedKeySet{Name: strconv.Itoa(i), Keys: set})
	}
	return named
}

// Two clusters may sign with keys of one ID for one issuer: the set's name is what tells them
// apart, with the key ID in the token or without, and unions within unions keep the outer one.
func TestUnionKeySetSaysWhichSet(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	only := func(key *Key) KeySet {
		set, err := NewStaticKeySet(key)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	inner, err := NewUnionKeySet(NamedKeySet{Name: "inner", Keys: only(b)})
	if err != nil {
		t.Fatal(err)
	}
	union, err := NewUnionKeySet(NamedKeySet{"one", only(a)}, NamedKeySet{"two", inner})
	if err != nil {
		t.Fatal(err)
	}
	for keyID, want := range map[string][]string{"a": {"one"}, "b": {"two"}, "": {"one", "two"}} {
		keys, err := union.Keys(t.Context(), keyID)
		var got []string
		for _, key := range keys {
			got = append(got, key.Set())
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("key ID %q: sets %q, %v, want %q", keyID, got, err, want)
		}
	}
	if a.Set() != "" || b.Set() != "" {
		t.Error("the union wrote a name onto keys that are not its own")
	}
	for name, sets := range map[string][]NamedKeySet{
		"no name":   {{"", oneKey{a}}},
		"one name":  {{"x", oneKey{a}}, {"x", oneKey{b}}},
		"typed nil": {{"x", (*RemoteKeySet)(nil)}},
	} {
		_, err := NewUnionKeySet(sets...)
		refusedFor(t, name, err, checkKeySet)
	}
}

func TestUnionKeySetRefuses(t *testing.T) {
	for name, sets := range map[string][]KeySet{"none": nil, "nil": {nil}, "nil after one": {oneKey{}, nil}} {
		t.Run(name, func(t *testing.T) {
			_, err := NewUnionKeySet(namedSets(sets...)...)
			refusedFor(t, name, err, checkKeySet)
		})
	}
	for name, union := range map[string]*UnionKeySet{"zero": {}, "nil union": nil} {
		t.Run(name, func(t *testing.T) {
			_, err := union.Keys(t.Context(), "k")
			refusedFor(t, name, err, checkKeySet)
		})
	}
	sets := namedSets(oneKey{named(t, "k")})
	union, err := NewUnionKeySet(sets...)
	if err != nil {
		t.Fatal(err)
	}
	sets[0].Keys = nil // the caller's slice is not the union's
	if keys, err := union.Keys(t.Context(), "k"); err != nil || len(keys) != 1 {
		t.Errorf("%v, %v", keys, err)
	}
}

// A union is changed as soon, and keys leave it as early, as in the fastest of its sets.
func TestUnionKeySetOverlap(t *testing.T) {
	rotating := func(publish, retain time.Duration) KeySet {
		r, err := NewRotatingSigner(namedSigner(t, "a"), RotationConfig{Publish: publish, Retain: retain})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	union := func(sets ...KeySet) *UnionKeySet {
		u, err := NewUnionKeySet(namedSets(sets...)...)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, test := range map[string]struct {
		union           *UnionKeySet
		publish, retain time.Duration
	}{
		"of one":          {union(rotating(2, 3)), 2, 3},
		"beside a static": {union(oneKey{}, rotating(2, 3)), 2, 3},
		"of two":          {union(rotating(2, 30), rotating(20, 3)), 2, 3},
		"of unions":       {union(union(rotating(2, 3)), rotating(4, 5)), 2, 3},
		"of statics":      {union(oneKey{}), math.MaxInt64, math.MaxInt64},
		"zero":            {new(UnionKeySet), 0, 0},
		"nil":             {nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if publish, retain := test.union.Overlap(); publish != test.publish || retain != test.retain {
				t.Errorf("got %v, %v, want %v, %v", publish, retain, test.publish, test.retain)
			}
		})
	}
}
