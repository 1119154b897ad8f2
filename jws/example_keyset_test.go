package jws_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// newSigner signs with a new key in memory. Any crypto.Signer can stand in its place: a
// key in a TPM, reached by PKCS #11 or in a key service.
func newSigner(keyID string) (*jws.CryptoSigner, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return jws.NewSigner(private, jws.SignerOptions{KeyID: keyID})
}

func ExampleNewSigner() {
	ctx := context.Background()
	signer, err := newSigner("2026-03")
	if err != nil {
		fmt.Println(err)
		return
	}
	payload := []byte(`{"sub":"system:serviceaccount:default:web"}`)
	signature, err := signer.Sign(ctx, payload)
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := jws.NewStaticKeySet(signer.Key())
	if err != nil {
		fmt.Println(err)
		return
	}
	verified, err := jws.VerifySignature(ctx, signature.Token(payload), keys)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(verified.Key.Algorithm(), verified.Key.KeyID())
	fmt.Println(string(verified.Payload))
	// Output:
	// ES256 2026-03
	// {"sub":"system:serviceaccount:default:web"}
}

// A key is published for an hour before it signs, and stays so until the tokens of its
// predecessor have expired.
func ExampleRotatingSigner() {
	ctx := context.Background()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first, err := newSigner("first")
	if err != nil {
		fmt.Println(err)
		return
	}
	signer, err := jws.NewRotatingSigner(first, jws.RotationConfig{
		Publish: time.Hour,
		Retain:  24*time.Hour + time.Minute,
		Now:     func() time.Time { return now },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := newSigner("second")
	if err != nil {
		fmt.Println(err)
		return
	}
	from, err := signer.Rotate(second)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("second signs from", from.Format(time.TimeOnly))

	for _, later := range []time.Duration{0, time.Hour, 25*time.Hour + time.Minute} {
		now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(later)
		signature, err := signer.Sign(ctx, []byte("{}"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(later, ": signed by ", signature.Key.KeyID(), ", published:")
		for _, published := range signer.Published() {
			fmt.Print(" ", published.Key.KeyID())
		}
		fmt.Println()
	}
	// Output:
	// second signs from 13:00:00
	// 0s: signed by first, published: first second
	// 1h0m0s: signed by second, published: second first
	// 25h1m0s: signed by second, published: second
}

// A key set is fetched from an issuer, and outlives its outage.
func ExampleNewRemoteKeySet() {
	ctx := context.Background()
	signer, err := newSigner("2026-03")
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := jws.MarshalJWKS([]*jws.Key{signer.Key()})
	if err != nil {
		fmt.Println(err)
		return
	}
	issuer := http.NewServeMux()
	server := httptest.NewTLSServer(issuer)
	issuer.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, server.URL, server.URL+"/openid/v1/jwks")
	})
	issuer.HandleFunc("/openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(set)
	})

	keys, err := jws.NewRemoteKeySet(jws.RemoteConfig{Client: server.Client(), Issuer: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, keyID := range []string{"2026-03", "2026-02"} {
		found, err := keys.Keys(ctx, keyID)
		fmt.Println(keyID, len(found), err)
	}
	server.Close()
	found, err := keys.Keys(ctx, "2026-03")
	fmt.Println(len(found), err, keys.Status().Failures)

	// Without a first answer nothing can be decided.
	late, err := jws.NewRemoteKeySet(jws.RemoteConfig{Client: server.Client(), Issuer: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = late.Keys(ctx, "2026-03")
	fmt.Println(errors.Is(err, refusal.ErrRetry), errors.Is(err, jws.Check("fetch")))
	// Output:
	// 2026-03 1 <nil>
	// 2026-02 0 <nil>
	// 1 <nil> 0
	// true true
}
