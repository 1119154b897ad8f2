package apiserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
)

const exampleIssuer, exampleAudience = "https://kubernetes.default.svc", "https://identity.example"

func exampleClock() time.Time { return time.Unix(1700000000, 0) }

// exampleKeys are a new signing key, and its public half as validators have it.
func exampleKeys() (*jws.CryptoSigner, *jws.StaticKeySet) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	signer, err := jws.NewSigner(private, jws.SignerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	keys, err := jws.NewStaticKeySet(signer.Key())
	if err != nil {
		log.Fatal(err)
	}
	return signer, keys
}

// exampleObjects are one pod on one node.
func exampleObjects() *claims.MemoryObjects {
	var objects claims.MemoryObjects
	objects.Put("nodes", claims.Object{Name: "node-a", UID: "node-uid"})
	objects.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart", UID: "sa-uid"})
	objects.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", UID: "pod-uid", ServiceAccountName: "cart", NodeName: "node-a"})
	return &objects
}

// exampleClaims are the claims of a token of the pod cart-0 on node-a.
const exampleClaims = `{"aud":["https://identity.example"],"exp":1700003600,"iat":1700000000,"iss":"https://kubernetes.default.svc","jti":"a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab","kubernetes.io":{"namespace":"shop","node":{"name":"node-a","uid":"node-uid"},"pod":{"name":"cart-0","uid":"pod-uid"},"serviceaccount":{"name":"cart","uid":"sa-uid"}},"nbf":1700000000,"sub":"system:serviceaccount:shop:cart"}`

// A token for a pod names the pod, and the node that it runs on.
func ExampleIssuer_Issue() {
	signer, _ := exampleKeys()
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer:       "https://kubernetes.default.svc",
		APIAudiences: []string{"https://kubernetes.default.svc"},
		MaxLifetime:  2 * time.Hour,
		Signer:       signer,
		Objects:      exampleObjects(),
		Now:          func() time.Time { return time.Unix(1700000000, 0) },
		NewID:        func() string { return "a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab" },
	})
	if err != nil {
		log.Fatal(err)
	}
	seconds := int64(86400)
	issued, err := issuer.Issue(context.Background(), &apiserver.TokenRequest{
		Namespace: "shop", Name: "cart", Audiences: []string{"vault"}, ExpirationSeconds: &seconds,
		BoundObject: &apiserver.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "cart-0", UID: "pod-uid"},
	})
	if err != nil {
		log.Fatal(err)
	}
	payload, err := issued.Claims.Marshal()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(issued.Token, issued.Claims.CredentialID()) // a log does not get the token
	fmt.Println(issued.Warnings)
	fmt.Println(string(payload))

	// The pod was made again under its name.
	_, err = issuer.Issue(context.Background(), &apiserver.TokenRequest{
		Namespace: "shop", Name: "cart",
		BoundObject: &apiserver.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "cart-0", UID: "old-uid"},
	})
	fmt.Println(errors.Is(err, apiserver.ReasonConflict))
	// Output:
	// [secret] JTI=a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab
	// [requested expiration of 86400 seconds shortened to 7200 seconds]
	// {"aud":["vault"],"exp":1700007200,"iat":1700000000,"iss":"https://kubernetes.default.svc","jti":"a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab","kubernetes.io":{"namespace":"shop","node":{"name":"node-a","uid":"node-uid"},"pod":{"name":"cart-0","uid":"pod-uid"},"serviceaccount":{"name":"cart","uid":"sa-uid"}},"nbf":1700000000,"sub":"system:serviceaccount:shop:cart"}
	// true
}

// The answer of a TokenReview, with the API server's own words for the refusal.
func ExampleValidator_Validate() {
	objects := exampleObjects()
	signer, keys := exampleKeys()
	signature, err := signer.Sign(context.Background(), []byte(exampleClaims))
	if err != nil {
		log.Fatal(err)
	}
	token := signature.Token([]byte(exampleClaims))
	validator, err := apiserver.NewValidator(apiserver.ValidatorConfig{
		Issuers: []string{exampleIssuer}, Keys: keys, Objects: objects,
		Audiences: []string{exampleIssuer}, Now: exampleClock,
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := validator.Validate(context.Background(), token, exampleAudience)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Username(), result.Groups())
	extra := result.Extra()
	keysOf := make([]string, 0, len(extra))
	for key := range extra {
		keysOf = append(keysOf, key)
	}
	slices.Sort(keysOf)
	for _, key := range keysOf {
		fmt.Println(" ", key, extra[key])
	}

	_, err = validator.Validate(context.Background(), token)
	fmt.Println(err)
	objects.Delete("pods", "shop", "cart-0")
	_, err = validator.Validate(context.Background(), token, exampleAudience)
	fmt.Println(err, errors.Is(err, claims.Check("pod-gone")))
	// Output:
	// system:serviceaccount:shop:cart [system:serviceaccounts system:serviceaccounts:shop]
	//   authentication.kubernetes.io/credential-id [JTI=a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab]
	//   authentication.kubernetes.io/node-name [node-a]
	//   authentication.kubernetes.io/node-uid [node-uid]
	//   authentication.kubernetes.io/pod-name [cart-0]
	//   authentication.kubernetes.io/pod-uid [pod-uid]
	// token audiences ["https://identity.example"] is invalid for the target audiences ["https://kubernetes.default.svc"]
	// service account token has been invalidated true
}
