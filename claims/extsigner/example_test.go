package extsigner_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/jws"
)

// An external signer, and a client that trusts none of its answers: here the two talk
// directly, in a cluster through a socket.
func ExampleNewClient() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	first, err := jws.NewSigner(key, jws.SignerOptions{KeyID: "key-1", Type: jws.TypeJWT})
	if err != nil {
		log.Fatal(err)
	}
	rotating, err := jws.NewRotatingSigner(first, jws.RotationConfig{Publish: time.Hour, Retain: 25 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	service, err := extsigner.NewService(extsigner.ServiceConfig{
		Issuer: "https://issuer.example", Signer: rotating, Keys: rotating,
		RefreshHint: time.Hour, MaxTokenLifetime: 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	client, err := extsigner.NewClient(context.Background(), service, extsigner.ClientOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	policy, err := apiserver.Policy{Issuer: "https://issuer.example", APIAudiences: []string{"api"}}.LimitTo(client.MaxTokenLifetime())
	if err != nil {
		log.Fatal(err)
	}
	objects := &claims.MemoryObjects{}
	objects.PutServiceAccount(claims.Object{Namespace: "shop", Name: "cart", UID: "sa-uid"})
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{Policy: policy, Signer: client, Objects: objects})
	if err != nil {
		log.Fatal(err)
	}
	issued, err := issuer.Issue(context.Background(), &apiserver.TokenRequest{Namespace: "shop", Name: "cart"})
	if err != nil {
		log.Fatal(err)
	}
	verified, err := jws.VerifySignature(context.Background(), issued.Token.Reveal(), client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(verified.Key.KeyID(), verified.Token.Type(), issued.ExpirationSeconds)

	// The service signs tokens and nothing else.
	_, err = client.Sign(context.Background(), []byte("transfer 100 coins"))
	fmt.Println(errors.Is(err, extsigner.Check("signer-claims")))
	// Output:
	// key-1 JWT 3600
	// true
}
