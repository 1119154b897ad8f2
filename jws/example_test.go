package jws_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// The signature that a cluster publishes with its cluster-info, and the check that a
// joining node makes with its bootstrap token.
func Example() {
	clusterInfo := []byte("apiVersion: v1\nkind: Config\n")
	secret := []byte("0123456789abcdef")

	published, err := jws.NewDetached(clusterInfo)
	if err != nil {
		fmt.Println(err)
		return
	}
	signature, err := published.Sign("abcdef", secret)
	fmt.Println(signature, err)
	fmt.Println(published.Verify(signature, "abcdef", secret))

	other, err := jws.NewDetached(append(clusterInfo, '#'))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(other.Verify(signature, "abcdef", secret))
	// Output:
	// eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..vH_kT4yiol-nrAWgjfCYqvum5wsKETXe0S7OOp1VgnE <nil>
	// <nil>
	// jws-signature: got a signature over other bytes or with another key, want that of abcdef
}

// One payload is encoded once for all tokens.
func ExampleDetached() {
	d, err := jws.NewDetached([]byte("apiVersion: v1\nkind: Config\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for id, secret := range map[string]string{"abcdef": "0123456789abcdef"} {
		signature, err := d.Sign(id, []byte(secret))
		fmt.Println(err, d.Verify(signature, id, []byte(secret)))
	}
	// Output: <nil> <nil>
}

// oneKeySet is the smallest set of keys.
type oneKeySet struct{ key *jws.Key }

func (s oneKeySet) Keys(_ context.Context, keyID string) ([]*jws.Key, error) {
	if keyID == "" || keyID == s.key.KeyID() {
		return []*jws.Key{s.key}, nil
	}
	return nil, nil
}

// The key and the token of RFC 8037, appendix A.
func ExampleVerifySignature() {
	keys, err := jws.ParseJWKS([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	const token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"

	verified, err := jws.VerifySignature(context.Background(), token, oneKeySet{keys[0]})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", verified.Payload)

	_, err = jws.VerifySignature(context.Background(), token+"=", oneKeySet{keys[0]})
	fmt.Println(errors.Is(err, refusal.Check("base64url")))
	// Output:
	// Example of Ed25519 signing
	// true
}

// A token without signature, and the unverified content of a token.
func ExampleParse() {
	_, err := jws.Parse("eyJhbGciOiJub25lIn0.e30.")
	fmt.Println(err)

	token, err := jws.Parse("eyJhbGciOiJFZERTQSJ9.e30.AAAA")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %q %s\n", token.Algorithm(), token.KeyID(), token.UnverifiedPayload())
	// Output:
	// algorithm: got none, want RS, PS or ES with 256, 384 or 512, or EdDSA
	// EdDSA "" {}
}

// Without options a key gets the ID that Kubernetes derives, and its usual algorithm.
func ExampleNewKey() {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := jws.NewKey(private.Public(), jws.KeyOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(key.Algorithm(), len(key.KeyID()))

	_, err = jws.NewKey(private.Public(), jws.KeyOptions{Algorithm: jws.RS256})
	fmt.Println(err)
	// Output:
	// ES256 43
	// algorithm: got RS256, want one of [ES256]
}

// A set as kube-apiserver serves it at /openid/v1/jwks, from a key in PEM.
func ExampleMarshalJWKS() {
	block, _ := pem.Decode([]byte(`-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
`))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := jws.NewKey(public, jws.KeyOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := jws.MarshalJWKS([]*jws.Key{key})
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Stdout.Write(append(set, '\n'))

	again, err := jws.ParseJWKS(set)
	fmt.Println(len(again), err)
	// Output:
	// {"keys":[{"use":"sig","kty":"OKP","kid":"BuP9j9opu2CrWVV95h7bCuzbIxE0vjDnW0Vfjht5L6k","crv":"Ed25519","alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}
	// 1 <nil>
}
