package keys

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// BenchmarkKeys is with as many keys of peers as there may be. A service asks for all keys with each signature.
func BenchmarkKeys(b *testing.B) {
	f := newBench(b)
	text := ""
	for range maxPeers {
		key := testkit.Must(ecdsa.GenerateKey(private(1).(*ecdsa.PrivateKey).Curve, rand.Reader))
		text += block("PUBLIC KEY", testkit.Must(x509.MarshalPKIXPublicKey(&key.PublicKey)))
	}
	f.write("peers/p.pem", text)
	f.start()
	for b.Loop() {
		if keys, err := f.keys.Keys(b.Context(), ""); err != nil || len(keys) != maxPeers+1 {
			b.Fatal(len(keys), err)
		}
	}
}
