package claims_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
)

// exampleSigner makes a signer with a new key.
func exampleSigner(typ string) *jws.CryptoSigner {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	signer, err := jws.NewSigner(key, jws.SignerOptions{KeyID: "key-1", Type: typ})
	if err != nil {
		log.Fatal(err)
	}
	return signer
}

// exampleObjects are one pod on one node.
func exampleObjects() *claims.MemoryObjects {
	objects := &claims.MemoryObjects{}
	objects.PutServiceAccount(claims.Object{Namespace: "shop", Name: "cart", UID: "sa-uid"})
	objects.PutPod(claims.Pod{
		Object:             claims.Object{Namespace: "shop", Name: "cart-0", UID: "pod-uid"},
		ServiceAccountName: "cart", NodeName: "node-a",
	})
	objects.PutNode(claims.Node{Object: claims.Object{Name: "node-a", UID: "node-uid"}})
	return objects
}

// A token for a pod names the pod, and the node that it runs on.
func ExampleIssuer_Issue() {
	issuer, err := claims.NewIssuer(claims.IssuerConfig{
		Policy: claims.Policy{
			Issuer:        "https://kubernetes.default.svc",
			APIAudiences:  []string{"https://kubernetes.default.svc"},
			MaxExpiration: 2 * time.Hour,
		},
		Signer:  exampleSigner(""),
		Objects: exampleObjects(),
		Now:     func() time.Time { return time.Unix(1700000000, 0) },
		NewID:   func() (string, error) { return "a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab", nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	seconds := int64(86400)
	issued, err := issuer.Issue(context.Background(), &claims.TokenRequest{
		Namespace: "shop", Name: "cart", Audiences: []string{"vault"}, ExpirationSeconds: &seconds,
		BoundObject: &claims.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "cart-0", UID: "pod-uid"},
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
	_, err = issuer.Issue(context.Background(), &claims.TokenRequest{
		Namespace: "shop", Name: "cart",
		BoundObject: &claims.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "cart-0", UID: "old-uid"},
	})
	fmt.Println(errors.Is(err, claims.ReasonConflict))
	// Output:
	// [secret] JTI=a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab
	// [requested expiration of 86400 seconds shortened to 7200 seconds]
	// {"aud":["vault"],"exp":1700007200,"iat":1700000000,"iss":"https://kubernetes.default.svc","jti":"a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab","kubernetes.io":{"namespace":"shop","node":{"name":"node-a","uid":"node-uid"},"pod":{"name":"cart-0","uid":"pod-uid"},"serviceaccount":{"name":"cart","uid":"sa-uid"}},"nbf":1700000000,"sub":"system:serviceaccount:shop:cart"}
	// true
}

// Claims are read strictly: a time in quotes is a time to other readers, and none here.
func ExampleParse() {
	c, err := claims.Parse([]byte(`{"sub":"system:serviceaccount:shop:cart","aud":["vault"],"exp":1700007200}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Subject, c.Audiences, c.Expiry.Time().Format(time.RFC3339), c.NotBefore.Present)

	_, err = claims.Parse([]byte(`{"exp":"1700007200"}`))
	fmt.Println(errors.Is(err, claims.CheckType))
	// Output:
	// system:serviceaccount:shop:cart [vault] 2023-11-15T00:13:20Z false
	// true
}

// The two documents with which others verify an issuer's tokens.
func ExampleOIDCHandler() {
	signer := exampleSigner("")
	keys, err := jws.NewStaticKeySet(signer.Key())
	if err != nil {
		log.Fatal(err)
	}
	handler, err := claims.NewOIDCHandler(
		claims.OIDCConfig{Issuer: "https://issuer.example", ExternalAddress: "issuer.example"},
		&claims.KeySetSource{Keys: keys},
	)
	if err != nil {
		log.Fatal(err)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", claims.OIDCConfigurationPath, nil))
	fmt.Println(answer.Header().Get("Cache-Control"))
	fmt.Println(answer.Body)
	// Output:
	// public, max-age=3600
	// {"issuer":"https://issuer.example","jwks_uri":"https://issuer.example/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}
}

// An external signer, and a client that trusts none of its answers: here the two talk
// directly, in a cluster through a socket.
func ExampleNewExternalClient() {
	rotating, err := jws.NewRotatingSigner(exampleSigner(jws.TypeJWT), jws.RotationConfig{Publish: time.Hour, Retain: 25 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	service, err := claims.NewSignerService(claims.SignerServiceConfig{
		Issuer: "https://issuer.example", Signer: rotating, Keys: rotating,
		RefreshHint: time.Hour, MaxTokenLifetime: 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	client, err := claims.NewExternalClient(context.Background(), service, nil)
	if err != nil {
		log.Fatal(err)
	}
	policy, err := claims.Policy{Issuer: "https://issuer.example", APIAudiences: []string{"api"}}.LimitTo(client.MaxTokenLifetime())
	if err != nil {
		log.Fatal(err)
	}
	issuer, err := claims.NewIssuer(claims.IssuerConfig{Policy: policy, Signer: client, Objects: exampleObjects()})
	if err != nil {
		log.Fatal(err)
	}
	issued, err := issuer.Issue(context.Background(), &claims.TokenRequest{Namespace: "shop", Name: "cart"})
	if err != nil {
		log.Fatal(err)
	}
	verified, err := jws.Verify(context.Background(), issued.Token.Reveal(), client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(verified.Key.KeyID(), verified.Token.Type(), issued.ExpirationSeconds)

	// The service signs tokens and nothing else.
	_, err = client.Sign(context.Background(), []byte("transfer 100 coins"))
	fmt.Println(errors.Is(err, claims.CheckSignerClaims))
	// Output:
	// key-1 JWT 3600
	// true
}
