package keys

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestRotation: a new key is published, signs after Publish, and the one before it stays for Retain.
func TestRotation(t *testing.T) {
	b := newBench(t)
	b.start()
	b.wantSigns(1)
	b.wantKeys(1)
	b.write("key.pem", privatePEM(0))
	b.pass(time.Second)
	b.wantSigns(1)
	b.wantKeys(0, 1)
	b.pass(publish - time.Second)
	b.wantSigns(1)
	b.pass(time.Second)
	b.wantSigns(0)
	b.wantKeys(0, 1)
	b.pass(retain - time.Second)
	b.wantKeys(0, 1)
	b.pass(time.Second)
	b.wantKeys(0)
	if s := b.keys.Status(); s.Rotations != 1 || !s.Ready || s.Failures+s.StateFailures != 0 || len(s.Published) != 1 || !s.SigningSince.Equal(b.clock.Add(-retain)) {
		t.Errorf("status: got %+v", s)
	}
	for _, line := range []string{"new key published", "key signs", "key no longer signs", "key is no longer published"} {
		b.wantLog(line)
	}
}

// TestRotationEdges changes the key file in the midst of a rotation.
func TestRotationEdges(t *testing.T) {
	t.Run("two quick changes", func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.write("key.pem", privatePEM(2))
		b.pass(0)
		b.pass(publish / 2)
		b.write("key.pem", privatePEM(3))
		b.pass(0)
		b.pass(publish - time.Second)
		b.wantSigns(1) // 3 has not been published for long enough
		b.wantKeys(1, 2, 3)
		b.pass(time.Second)
		b.wantSigns(3)
	})
	t.Run("the old key is put back before the new one signs", func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.write("key.pem", privatePEM(2))
		b.pass(0)
		b.write("key.pem", privatePEM(1))
		b.pass(time.Second)
		b.pass(2 * publish)
		b.wantSigns(1)
		b.pass(retain)
		b.wantKeys(1)
	})
	t.Run("the old key is put back after the new one has signed", func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.write("key.pem", privatePEM(2))
		b.pass(0)
		b.pass(publish)
		b.wantSigns(2)
		b.write("key.pem", privatePEM(1))
		b.pass(0)
		b.wantKeys(1, 2)
		b.pass(publish)
		b.wantSigns(1)
		b.wantKeys(1, 2)
		b.pass(retain)
		b.wantKeys(1)
	})
	t.Run("the same key in other encodings", func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.write("key.pem", block("EC PRIVATE KEY", testkit.Must(x509.MarshalECPrivateKey(private(1).(*ecdsa.PrivateKey)))))
		b.pass(2 * publish)
		if b.wantKeys(1); b.keys.Status().Rotations != 0 {
			t.Error("a rotation")
		}
		b.write("key.pem", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(private(0).(*rsa.PrivateKey))))
		b.pass(0)
		b.pass(publish)
		b.wantSigns(0)
	})
	t.Run("another key under the same key ID", func(t *testing.T) {
		b := newBench(t)
		b.config.KeyID = "of-the-operator"
		b.start()
		b.write("key.pem", privatePEM(2))
		b.pass(0)
		b.pass(2 * publish)
		if b.signs() != "of-the-operator" || len(testkit.Must(b.keys.Keys(t.Context(), ""))) != 1 {
			t.Error("the new key took the ID")
		}
		if got := testkit.Must(b.keys.Keys(t.Context(), "of-the-operator")); !samePublic(got[0].Public(), private(1).Public()) {
			t.Error("the ID is the new key's")
		}
		b.wantLog("another key with the key ID")
		b.start()
		if got := b.signs(); !strings.Contains(got, "no longer in") {
			t.Errorf("after a restart: got %s", got)
		}
		b.config.KeyID, b.config.Now = "another", func() time.Time { return b.clock }
		b.start() // which is a rotation at a restart
		b.clock = b.clock.Add(publish)
		if got := b.signs(); got != "another" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("a clock that goes back", func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.write("key.pem", privatePEM(2))
		b.pass(0)
		b.pass(publish)
		b.wantSigns(2)
		b.pass(-24 * time.Hour)
		b.wantKeys(1, 2)
		b.start()
		b.wantKeys(1, 2)
		b.pass(25 * time.Hour)
		b.wantSigns(2)
	})
}

// TestUnfitKeyFile: a file that is no key for kube-apiserver keeps the old key, is logged once and counted, and
// is no key to start with.
func TestUnfitKeyFile(t *testing.T) {
	weak := testkit.Must(rsa.GenerateKey(rand.Reader, 1024))
	_, edwards, _ := ed25519.GenerateKey(rand.Reader)
	whole := privatePEM(2)
	for name, text := range map[string]string{
		"empty": "", "cut": whole[:len(whole)/2], "cut before its last line": whole[:strings.Index(whole, "-----END")],
		"cut in the second":   whole + whole[:60],
		"cut in the first":    whole[:100] + "\n" + privatePEM(3),
		"text after it":       whole + "x",
		"three keys":          privatePEM(2, 3, 1),
		"a public key":        publicPEM(2),
		"Ed25519":             block("PRIVATE KEY", testkit.Must(x509.MarshalPKCS8PrivateKey(edwards))),
		"RSA of 1024 bits":    block("PRIVATE KEY", testkit.Must(x509.MarshalPKCS8PrivateKey(weak))),
		"encrypted":           strings.ReplaceAll(whole, "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
		"another label":       strings.ReplaceAll(whole, "PRIVATE KEY", "RSA PRIVATE KEY"),
		"encrypted by header": strings.Replace(whole, "KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
		"too large":           whole + strings.Repeat("\n", maxKeyFile),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			b.write("key.pem", text)
			for range 3 {
				b.pass(publish)
			}
			b.wantSigns(1)
			b.wantKeys(1)
			if got := b.keys.Status().Failures; got != 3 {
				t.Errorf("%d failures", got)
			}
			if n := strings.Count(b.log.String(), "file not used"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, b.log)
			}
			b.degraded("key.pem", 1)
			testkit.MustDo(os.Remove(b.path("state.json")))
			if _, err := Open(b.config); err == nil {
				t.Error("a first start with it")
			}
			b.pass(0) // writes the state again
			b.write("key.pem", whole)
			b.pass(0)
			b.pass(publish)
			b.wantSigns(2)
			b.wantLog("file used again")
		})
	}
}

// TestRestartDuringRotation: a program that has only the new key signs nothing until that has been published
// for Publish; with the old one after it in the file there is no pause.
func TestRestartDuringRotation(t *testing.T) {
	b := newBench(t)
	b.start()
	b.write("key.pem", privatePEM(2))
	b.pass(0)
	b.clock = b.clock.Add(publish / 2)
	b.start()
	b.wantKeys(1, 2)
	if _, err := b.keys.Sign(t.Context(), []byte("{}")); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %v", err)
	}
	if b.keys.Status().Ready {
		t.Error("ready without a key")
	}
	b.wantLog("no tokens are signed")
	b.pass(publish - time.Second)
	if got := b.signs(); !strings.Contains(got, "no longer in") {
		t.Errorf("got %s", got)
	}
	b.write("key.pem", privatePEM(2, 1)) // the operator helps
	b.pass(0)
	b.wantSigns(1)
	b.pass(time.Second)
	b.wantSigns(2)
	b.wantKeys(1, 2)
	if !b.keys.Status().Ready {
		t.Error("not ready")
	}

	b.write("key.pem", privatePEM(3, 2))
	b.pass(0)
	for range 3 { // each start publishes it for Publish again
		b.clock = b.clock.Add(publish / 2)
		b.start()
		b.wantSigns(2)
		b.wantKeys(1, 2, 3)
	}
	b.pass(publish)
	b.wantSigns(3)
	b.start()
	b.wantSigns(3)
	b.wantKeys(1, 2, 3)
}

// TestManyRotations: more keys than are published at a time are refused, not dropped.
func TestManyRotations(t *testing.T) {
	b := newBench(t)
	b.config.Retain = Duration(1000 * time.Hour)
	b.start()
	signs := ""
	for n := range maxRetired + 5 {
		key := testkit.Must(ecdsa.GenerateKey(private(1).(*ecdsa.PrivateKey).Curve, rand.Reader))
		text := block("PRIVATE KEY", testkit.Must(x509.MarshalPKCS8PrivateKey(key)))
		if b.write("key.pem", text); n < maxRetired {
			signs = text
		}
		b.pass(0)
		b.pass(publish)
	}
	if got := testkit.Must(b.keys.Keys(t.Context(), "")); len(got) != maxRetired+1 || find(got, id(1)) == nil {
		t.Errorf("%d keys", len(got))
	}
	if b.keys.Status().Failures == 0 {
		t.Error("no failure")
	}
	b.start()
	b.wantLog("at most 64 that no longer sign")
	if b.keys.Status().Ready || len(testkit.Must(b.keys.Keys(t.Context(), ""))) != maxRetired+1 {
		t.Errorf("got %+v", b.keys.Status())
	}
	b.write("key.pem", signs)
	b.start()
	if !b.keys.Status().Ready {
		t.Error("the key that signed does not")
	}
}

// token is one that was signed, and by when it has ended.
type token struct {
	key *jws.Key
	at  time.Time
}

// TestRotationNeverRefuses: whatever happens to the key file, to the program and to its disk, no token is
// refused that was signed less than Retain ago, and none is signed with a key that some verifier may not have
// got yet, because it was not among the keys at some time of the last Publish.
func TestRotationNeverRefuses(t *testing.T) {
	type view struct {
		at   time.Time
		keys []*jws.Key
	}
	for seed := range uint64(25) {
		r := mathrand.New(mathrand.NewPCG(seed, 1))
		b := newBench(t)
		b.start()
		var tokens []token
		var views []view
		done := ""
		for step := range 60 {
			switch n := r.IntN(12); {
			case n < 3:
				keys := []int{1, 4, 5, 6} // of P-256
				r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
				keys = keys[:1+r.IntN(2)]
				b.write("key.pem", privatePEM(keys...))
				done += fmt.Sprint(" file", keys)
			case n == 3:
				b.clock = b.clock.Add(publish / 3)
				done += " restart"
				if k, err := Open(b.config); err == nil {
					b.keys = k
				}
			case n == 4:
				done += " broken-disk"
				b.keys.config.StateFile = b.path("nowhere/state.json")
				b.pass(0)
				b.keys.config.StateFile = b.path("state.json")
			case n == 5:
				done += " hour"
				b.clock = b.clock.Add(retain / 4)
			default:
				done += " time"
				b.clock = b.clock.Add(time.Duration(r.Int64N(int64(publish))))
			}
			if r.IntN(4) != 0 {
				done += " reload"
				b.keys.reload(context.Background())
			}
			keys := testkit.Must(b.keys.Keys(t.Context(), ""))
			views = append(views, view{b.clock, keys})
			if s, err := b.keys.Sign(t.Context(), []byte("{}")); err == nil {
				tokens = append(tokens, token{s.Key, b.clock})
				for _, v := range views {
					if b.clock.Sub(v.at) <= publish && find(v.keys, s.Key.KeyID()) == nil {
						t.Fatalf("seed %d, step %d: signed with a key that was not published %s before:%s\n%s", seed, step, b.clock.Sub(v.at), done, b.log)
					}
				}
			}
			for _, issued := range tokens {
				if b.clock.Sub(issued.at) < retain && find(keys, issued.key.KeyID()) == nil {
					t.Fatalf("seed %d, step %d: a token is refused:%s\n%s", seed, step, done, b.log)
				}
			}
		}
	}
}
