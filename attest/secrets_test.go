package attest

import (
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/secret"
)

// Rings keep their keys out of logs, errors and encoded objects.
func TestRingsAreNotShown(t *testing.T) {
	key := NewRingKey(ringTime)
	t.Run("RingKey", func(t *testing.T) { testkit.CheckSecrets(t, key, revealed(&key)) })
	ring := testkit.Must(NewStaticKeyRing(key))
	t.Run("KeyRing", func(t *testing.T) { testkit.CheckSecrets(t, ring, revealed(&key)) })
	t.Run("VerifierConfig", func(t *testing.T) { testkit.CheckSecrets(t, VerifierConfig{KeyRing: ring}, revealed(&key)) })
	t.Run("Verifier", func(t *testing.T) {
		testkit.CheckSecrets(t, &Verifier{c: VerifierConfig{KeyRing: ring}}, revealed(&key))
	})
}

// A challenge that the node has opened, or that the verifier holds an answer against, keeps
// its secret.
func TestChallengedIsNotShown(t *testing.T) {
	s := []byte("q7#Zk2!vX9@pL4$wN6%yT8^hJ3&bF5*0")
	c := &Challenged{format: "tpm/v1", secret: secret.New(s), binding: []byte{1}}
	t.Run("Challenged", func(t *testing.T) { testkit.CheckSecrets(t, c, s) })
	t.Run("Inquiry", func(t *testing.T) { testkit.CheckSecrets(t, &Inquiry{challenged: c}, s) })
}
