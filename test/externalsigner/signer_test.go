package externalsigner

import (
	"crypto/rand"
	"crypto/rsa"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// TestSigner has a kube-apiserver sign pods' tokens at our service across a rotation to another algorithm.
func TestSigner(t *testing.T) {
	first, err := jws.NewSigner(controlplane.NewKey(t), jws.SignerOptions{Type: jws.TypeJWT})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jws.NewRotatingSigner(first, jws.RotationConfig{Publish: 3 * time.Second, Retain: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s := startCluster(t, serve(t, signer, 2*time.Second))
	pod, v := s.makePod(t), s.validators(t, signer)
	check := func(token string) {
		t.Helper()
		eventually(t, func() error { return s.review(t.Context(), token) })
		if err := v.validate(t.Context(), token); err != nil {
			t.Error(err)
		}
		parsed, err := jws.Parse(token)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("typ %q alg %v kid %.8s", parsed.Type(), parsed.Algorithm(), parsed.KeyID())
	}
	token := s.token(t, pod)
	check(token)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	next, err := jws.NewSigner(key, jws.SignerOptions{Type: jws.TypeJWT})
	if err != nil {
		t.Fatal(err)
	}
	from, err := signer.Rotate(next)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(from) + time.Second)
	check(s.token(t, pod))
	check(token)
}
