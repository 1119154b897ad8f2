package interop

import (
	"math/rand/v2"
	"testing"

	bootstrapjws "k8s.io/cluster-bootstrap/token/jws"

	"github.com/nodeattest/nodeattest/jws"
)

// signDetached signs one payload with one key.
func signDetached(payload []byte, keyID string, key []byte) (string, error) {
	d, err := jws.NewDetached(payload)
	if err != nil {
		return "", err
	}
	return d.Sign(keyID, key)
}

// verifyDetached verifies what signDetached returns.
func verifyDetached(signature string, payload []byte, keyID string, key []byte) error {
	d, err := jws.NewDetached(payload)
	if err != nil {
		return err
	}
	return d.Verify(signature, keyID, key)
}

// TestDetached signs random contents for random tokens and compares with Kubernetes' package:
// the signatures are the same bytes, and each side takes the other's.
func TestDetached(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	letters := []byte("abcdefghijklmnopqrstuvwxyz0123456789")
	text := func(n int, from []byte) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
			if from != nil {
				b[i] = from[r.IntN(len(from))]
			}
		}
		return string(b)
	}
	for range 10_000 {
		id, secret, content := text(6, letters), text(16, letters), text(r.IntN(4096), nil)
		theirs, err := bootstrapjws.ComputeDetachedSignature(content, id, secret)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := signDetached([]byte(content), id, []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		if ours != theirs {
			t.Fatalf("content of %d bytes: %q, Kubernetes has %q", len(content), ours, theirs)
		}
		if err := verifyDetached(theirs, []byte(content), id, []byte(secret)); err != nil {
			t.Fatal(err)
		}
		if !bootstrapjws.DetachedTokenIsValid(ours, content, id, secret) {
			t.Fatal("Kubernetes does not take our signature")
		}
		other := content + "x"
		if verifyDetached(theirs, []byte(other), id, []byte(secret)) == nil || bootstrapjws.DetachedTokenIsValid(ours, other, id, secret) {
			t.Fatal("a signature holds for another content")
		}
	}
}

// BenchmarkDetached signs 2 KiB here and there.
func BenchmarkDetached(b *testing.B) {
	content := make([]byte, 2048)
	b.Run("nodeattest sign", func(b *testing.B) {
		for b.Loop() {
			if _, err := signDetached(content, "abcdef", []byte("0123456789abcdef")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cluster-bootstrap sign", func(b *testing.B) {
		for b.Loop() {
			if _, err := bootstrapjws.ComputeDetachedSignature(string(content), "abcdef", "0123456789abcdef"); err != nil {
				b.Fatal(err)
			}
		}
	})
	signature, err := signDetached(content, "abcdef", []byte("0123456789abcdef"))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("nodeattest verify", func(b *testing.B) {
		for b.Loop() {
			if err := verifyDetached(signature, content, "abcdef", []byte("0123456789abcdef")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cluster-bootstrap verify", func(b *testing.B) {
		for b.Loop() {
			if !bootstrapjws.DetachedTokenIsValid(signature, string(content), "abcdef", "0123456789abcdef") {
				b.Fatal("invalid")
			}
		}
	})
}
