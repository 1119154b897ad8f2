package extsigner_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// An external signer: in a cluster, kube-apiserver calls its methods through a socket.
func ExampleNewService() {
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
		RefreshHint: time.Hour, MaxLifetime: 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	metadata, err := service.Metadata(ctx)
	if err != nil {
		log.Fatal(err)
	}
	keys, err := service.FetchKeys(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(metadata.MaxTokenExpirationSeconds, keys.Keys[0].KeyID, keys.RefreshHintSeconds)

	// The service signs the claims of service accounts' tokens and nothing else.
	_, err = service.Sign(ctx, base64.RawURLEncoding.EncodeToString([]byte("transfer 100 coins")))
	fmt.Println(errors.Is(err, refusal.Check("signer-claims")))
	// Output:
	// 86400 key-1 3600
	// true
}
