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
	defer keys.Close()
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
	defer late.Close()
	_, err = late.Keys(ctx, "2026-03")
	fmt.Println(errors.Is(err, refusal.ErrRetry), errors.Is(err, jws.Check("fetch")))
	// Output:
	// 2026-03 1 <nil>
	// 2026-02 0 <nil>
	// 1 <nil> 0
	// true true
}
