package extsigner_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const issuer, audience = "https://issuer.example", "https://identity.example"

// newKey makes a key that signs, in a TPM.
func newKey(ctx context.Context, tpm *tpmsim.TPM, id string) *jws.CryptoSigner {
	key, err := tpmkey.Create(ctx, tpm, tpmkey.ECDSAP256, tpmkey.Options{})
	if err != nil {
		log.Fatal(err)
	}
	signer, err := jws.NewSigner(key, jws.SignerOptions{KeyID: id, Type: jws.TypeJWT})
	if err != nil {
		log.Fatal(err)
	}
	return signer
}

// podToken does what kube-apiserver does for a pod's TokenRequest: it makes the claims, and asks the
// external signer for header and signature.
func podToken(ctx context.Context, service *extsigner.Service, now time.Time) (string, error) {
	c, err := apiserver.NewClaims(apiserver.Bound{
		ServiceAccount: &claims.Object{Namespace: "shop", Name: "cart", UID: "4c2a"},
		Pod:            &claims.Object{Namespace: "shop", Name: "cart-0", UID: "9f31"},
		Node:           &claims.Object{Name: "node-a", UID: "77d0"},
	}, 3607, 0, []string{audience}, "a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab", now)
	if err != nil {
		return "", err
	}
	c.Issuer = issuer
	payload, err := c.Marshal()
	if err != nil {
		return "", err
	}
	segment := base64.RawURLEncoding.EncodeToString(payload)
	signed, err := service.Sign(ctx, segment)
	if err != nil {
		return "", err
	}
	return signed.Header + "." + segment + "." + signed.Signature, nil
}

// fetchKeys gets the keys as kube-apiserver does before it publishes them.
func fetchKeys(ctx context.Context, service *extsigner.Service) []*jws.Key {
	answer, err := service.FetchKeys(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var keys []*jws.Key
	for _, k := range answer.Keys {
		public, err := x509.ParsePKIXPublicKey(k.Key)
		if err != nil {
			log.Fatal(err)
		}
		key, err := jws.NewKey(public, jws.KeyOptions{KeyID: k.KeyID})
		if err != nil {
			log.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// A signer with its keys in a TPM signs a token, rotates its key, and signs another. Both tokens are
// valid for a service that has fetched the keys.
func ExampleService() {
	ctx, now := context.Background(), time.Unix(1700000000, 0)
	clock := func() time.Time { return now }
	tpm, err := tpmsim.Open(tpmsim.Options{}) // in production the machine's own
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tpm.Close() }()
	first := newKey(ctx, tpm, "key-1")
	rotating, err := jws.NewRotatingSigner(first, jws.RotationConfig{Publish: time.Hour, Retain: 2 * time.Hour, Now: clock})
	if err != nil {
		log.Fatal(err)
	}
	service, err := extsigner.NewService(extsigner.ServiceConfig{
		Issuer: issuer, Signer: rotating, Keys: rotating, RefreshHint: time.Hour, Now: clock,
	})
	if err != nil {
		log.Fatal(err)
	}

	before, err := podToken(ctx, service, now)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := rotating.Rotate(newKey(ctx, tpm, "key-2")); err != nil { // published now, signs in an hour
		log.Fatal(err)
	}
	fmt.Println("keys:", len(fetchKeys(ctx, service)))
	now = now.Add(time.Hour)
	after, err := podToken(ctx, service, now)
	if err != nil {
		log.Fatal(err)
	}

	keys, err := jws.NewStaticKeySet(fetchKeys(ctx, service)...)
	if err != nil {
		log.Fatal(err)
	}
	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{issuer: keys}, Audiences: []string{audience},
		InsecureSkipObjects: true, InsecureAllowReplay: true, Now: clock,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, token := range []string{before, after} {
		result, err := validator.Validate(ctx, token)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Key.KeyID(), result.Username(), result.Claims.Kubernetes.Pod.Name)
	}
	// Output:
	// keys: 2
	// key-1 system:serviceaccount:shop:cart cart-0
	// key-2 system:serviceaccount:shop:cart cart-0
}
