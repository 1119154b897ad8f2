package jwstest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/jws/jwstest"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The signers of package jws, with keys in memory and in a TPM.
func TestSigners(t *testing.T) {
	device := tpmkey.Share(tpmsim.New(t, tpmsim.Options{}))
	signers := map[string]jws.Signer{}
	for name, algorithm := range map[string]tpmkey.Algorithm{"TPM P-256": tpmkey.ECDSAP256, "TPM RSA": tpmkey.RSA2048} {
		key, err := tpmkey.Create(t.Context(), device, algorithm, tpmkey.Options{})
		testkit.NoError(t, err)
		t.Cleanup(func() { testkit.NoError(t, key.Close()) })
		signers[name] = jwstest.NewSigner(t, key, jws.SignerOptions{})
	}
	for _, algorithm := range algorithms {
		signers[string(algorithm)] = jwstest.NewSigner(t, nil, jws.SignerOptions{Algorithm: algorithm, Type: jws.TypeJWT})
	}
	rotating, err := jws.NewRotatingSigner(jwstest.NewSigner(t, nil, jws.SignerOptions{}), jws.RotationConfig{Publish: time.Hour, Retain: time.Hour})
	testkit.NoError(t, err)
	_, err = rotating.Rotate(jwstest.NewSigner(t, nil, jws.SignerOptions{}))
	testkit.NoError(t, err)
	signers["rotating"] = rotating
	for name, signer := range signers {
		t.Run(name, func(t *testing.T) {
			if err := jwstest.TestSigner(t.Context(), signer); err != nil {
				t.Error(err)
			}
		})
	}
}

// The key sets of package jws.
func TestKeySets(t *testing.T) {
	a, b := jwstest.NewSigner(t, nil, jws.SignerOptions{}), jwstest.NewSigner(t, nil, jws.SignerOptions{Algorithm: jws.RS256})
	static, err := jws.NewStaticKeySet(a.Key(), b.Key())
	testkit.NoError(t, err)
	remote, err := jws.NewRemoteKeySet(jwstest.NewServer(t, a.Key(), b.Key()).RemoteConfig())
	testkit.NoError(t, err)
	rotating, err := jws.NewRotatingSigner(a, jws.RotationConfig{Publish: time.Hour, Retain: time.Hour})
	testkit.NoError(t, err)
	_, err = rotating.Rotate(b)
	testkit.NoError(t, err)
	for name, set := range map[string]jws.KeySet{"static": static, "remote": remote, "rotating": rotating} {
		t.Run(name, func(t *testing.T) {
			if err := jwstest.TestKeySet(t.Context(), set, a.Key(), b.Key()); err != nil {
				t.Error(err)
			}
		})
	}
}

// weakSigner is a signer with a fault.
type weakSigner func(ctx context.Context, payload []byte) (*jws.Signature, error)

func (s weakSigner) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	return s(ctx, payload)
}

// weakKeySigner says that it has another key.
type weakKeySigner struct {
	weakSigner
	key *jws.Key
}

func (s weakKeySigner) Key() *jws.Key { return s.key }

// weakKeySet is a key set with a fault.
type weakKeySet func(ctx context.Context, keyID string) ([]*jws.Key, error)

func (s weakKeySet) Keys(ctx context.Context, keyID string) ([]*jws.Key, error) { return s(ctx, keyID) }

// signingSet is a signer and a key set.
type signingSet struct {
	weakSigner
	weakKeySet
}

// finds checks that an error names exactly these checks.
func finds(t *testing.T, err error, want ...string) {
	t.Helper()
	if len(want) == 0 {
		testkit.NoError(t, err)
		return
	}
	if err == nil {
		t.Fatalf("nothing was found, want %q", want)
	}
	lines := strings.Split(err.Error(), "\n")[1:]
	for _, line := range lines {
		if startsCheck(line) && !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(line, w+": ") }) {
			t.Errorf("found %q too", line)
		}
	}
	for _, w := range want {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, w+": ") }) {
			t.Errorf("not found: %q in\n%v", w, err)
		}
	}
}

var checkNames = []string{
	"an empty payload", "claims", "bytes that are not UTF-8", "a payload of 16,384 bytes", "calls at once", "a payload of 2,097,153 bytes",
	"a context that has ended", "all keys", "an unknown key ID", "a key ID of 1 MiB", "a known key ID and one byte", "a known key ID but for its last byte",
}

// startsCheck reports whether a line is the first of a check, and no further error of calls at once.
func startsCheck(line string) bool {
	name, _, _ := strings.Cut(line, ": ")
	return slices.Contains(checkNames, name) || strings.HasPrefix(name, "the key ")
}

const (
	small = "an empty payload,claims,bytes that are not UTF-8,a payload of 16,384 bytes,calls at once"
	most  = "claims,bytes that are not UTF-8,a payload of 16,384 bytes,calls at once"
)

// names splits a list of checks; the one with a comma in it is put together again.
func names(list string, more ...string) []string {
	list = strings.ReplaceAll(list, "16,384", "16.384")
	all := strings.Split(list, ",")
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "16.384", "16,384")
	}
	return append(all, more...)
}

func TestSignerFinds(t *testing.T) {
	good, other := jwstest.NewSigner(t, nil, jws.SignerOptions{KeyID: "k"}), jwstest.NewSigner(t, nil, jws.SignerOptions{KeyID: "k"})
	longer := "a payload of 2,097,153 bytes"
	for name, test := range map[string]struct {
		signer jws.Signer
		want   []string
	}{
		"good": {weakSigner(good.Sign), nil},
		"key of another": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			s, err := good.Sign(ctx, payload)
			if err == nil {
				s.Key = other.Key()
			}
			return s, err
		}), names(small)},
		"no key": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			s, err := good.Sign(ctx, payload)
			if err == nil {
				s.Key = nil
			}
			return s, err
		}), names(small)},
		"nothing": {weakSigner(func(context.Context, []byte) (*jws.Signature, error) { return nil, nil }), names(small, longer)},
		"no key ID in the header": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			token, err := good.Forge(`{"alg":"ES256"}`, payload)
			parts := strings.Split(token, ".")
			if len(payload) > 1<<20 {
				return nil, errors.New("too long")
			}
			return &jws.Signature{Header: parts[0], Value: parts[2], Key: good.Key()}, err
		}), names(small)},
		"another payload": {weakSigner(func(ctx context.Context, _ []byte) (*jws.Signature, error) { return good.Sign(ctx, []byte("[]")) }), names(small, longer)},
		"strings": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			return good.Sign(ctx, []byte(strings.ToValidUTF8(string(payload), "?")))
		}), []string{"bytes that are not UTF-8"}},
		"trimmed": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			return good.Sign(ctx, payload[:min(len(payload), 8<<10)])
		}), []string{"a payload of 16,384 bytes", longer}},
		"nothing of nothing": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			if len(payload) == 0 {
				panic("no payload")
			}
			return good.Sign(ctx, payload)
		}), []string{"an empty payload"}},
		"changes the payload": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			clear(payload)
			return good.Sign(ctx, payload)
		}), names(most)},
		"a final error": {weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return good.Sign(ctx, payload)
		}), []string{"a context that has ended"}},
		"Key of another": {weakKeySigner{good.Sign, other.Key()}, names(small)},
		"Key of none":    {weakKeySigner{good.Sign, nil}, names(small)},
		"a set without its key": {signingSet{good.Sign, func(context.Context, string) ([]*jws.Key, error) {
			return []*jws.Key{other.Key()}, nil
		}}, names(small)},
	} {
		t.Run(name, func(t *testing.T) {
			finds(t, jwstest.TestSigner(t.Context(), test.signer), test.want...)
		})
	}
	if jwstest.TestSigner(t.Context(), nil) == nil {
		t.Error("no signer passes")
	}
}

func TestKeySetFinds(t *testing.T) {
	k, l := jwstest.NewSigner(t, nil, jws.SignerOptions{KeyID: "key-k"}).Key(), jwstest.NewSigner(t, nil, jws.SignerOptions{KeyID: "key-l"}).Key()
	other := jwstest.NewSigner(t, nil, jws.SignerOptions{KeyID: "key-k"}).Key()
	static, err := jws.NewStaticKeySet(k, l)
	testkit.NoError(t, err)
	const keyK, keyL, all, once = `the key "key-k" for ES256`, `the key "key-l" for ES256`, "all keys", "calls at once"
	unknown := []string{"an unknown key ID", "a key ID of 1 MiB", "a known key ID and one byte", "a known key ID but for its last byte"}
	var calls atomic.Int64
	for name, test := range map[string]struct {
		keys weakKeySet
		want []string
	}{
		"good":      {static.Keys, nil},
		"all of it": {func(ctx context.Context, _ string) ([]*jws.Key, error) { return static.Keys(ctx, "") }, append([]string{keyK, keyL, once}, unknown...)},
		"unknown is an error": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			keys, err := static.Keys(ctx, keyID)
			if len(keys) == 0 {
				return nil, errors.New("not found")
			}
			return keys, err
		}, unknown},
		"unknown may be there": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			keys, err := static.Keys(ctx, keyID)
			if len(keys) == 0 {
				return nil, refusal.ErrRetry
			}
			return keys, err
		}, unknown},
		"none without an ID": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			if keyID == "" {
				return nil, nil
			}
			return static.Keys(ctx, keyID)
		}, []string{all, once}},
		"one of two": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			keys, err := static.Keys(ctx, keyID)
			return keys[:min(1, len(keys))], err
		}, []string{all, once}},
		"another under the same ID": {func(context.Context, string) ([]*jws.Key, error) { return []*jws.Key{other}, nil }, append([]string{keyK, keyL, all, once}, unknown...)},
		"two under one ID": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			keys, err := static.Keys(ctx, keyID)
			if len(keys) == 0 {
				return nil, err
			}
			return append(slices.Clone(keys), keys[0]), err
		}, []string{keyK, keyL, all, once}},
		"nil among them": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			keys, err := static.Keys(ctx, keyID)
			if keyID != "" {
				return keys, err
			}
			return append(slices.Clone(keys), nil), err
		}, []string{all, once}},
		"by prefix": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			if strings.HasPrefix(keyID, "key-k") {
				keyID = "key-k"
			}
			return static.Keys(ctx, keyID)
		}, []string{"a known key ID and one byte"}},
		"by the first bytes": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			if strings.HasPrefix(keyID, "key-") && len(keyID) == 5 && keyID != "key-l" {
				keyID = "key-k"
			}
			return static.Keys(ctx, keyID)
		}, []string{"a known key ID but for its last byte"}},
		"a panic for long IDs": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			if len(keyID) > jws.MaxKeyIDSize {
				panic("too long")
			}
			return static.Keys(ctx, keyID)
		}, []string{"a key ID of 1 MiB"}},
		"a final error": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return static.Keys(ctx, keyID)
		}, []string{"a context that has ended"}},
		"one call at a time": {func(ctx context.Context, keyID string) ([]*jws.Key, error) {
			defer calls.Add(-1)
			if calls.Add(1) > 1 {
				return nil, errors.New("busy")
			}
			time.Sleep(time.Millisecond)
			return static.Keys(ctx, keyID)
		}, []string{once}},
	} {
		t.Run(name, func(t *testing.T) { finds(t, jwstest.TestKeySet(t.Context(), test.keys, k, l), test.want...) })
	}
	for name, err := range map[string]error{
		"no set": jwstest.TestKeySet(t.Context(), nil, k), "no key": jwstest.TestKeySet(t.Context(), static),
		"nil key": jwstest.TestKeySet(t.Context(), static, nil), "zero key": jwstest.TestKeySet(t.Context(), static, new(jws.Key)),
	} {
		if err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// A call that never returns is a failure, not a test that hangs.
func TestHangs(t *testing.T) {
	t.Parallel()
	k := jwstest.NewSigner(t, nil, jws.SignerOptions{})
	finds(t, jwstest.TestSigner(t.Context(), weakSigner(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
		if ctx.Err() != nil {
			select {}
		}
		return k.Sign(ctx, payload)
	})), "a context that has ended")
}
