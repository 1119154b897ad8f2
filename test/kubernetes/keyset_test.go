package kubernetes

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/nodeattest/nodeattest/jws"
)

// served is what kube-apiserver serves at /openid/v1/jwks for these files of
// --service-account-key-file.
func served(t *testing.T, files []byte) []byte {
	t.Helper()
	keys, err := keyutil.ParsePublicKeysPEM(files)
	if err != nil {
		t.Fatal(err)
	}
	getter, err := serviceaccount.StaticPublicKeysGetter(keys)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := serviceaccount.NewOpenIDMetadataProvider("https://issuer.example", "", "10.0.0.1:6443", getter)
	if err != nil {
		t.Fatal(err)
	}
	set, _ := provider.GetKeysetJSON()
	return set
}

// TestKeySetsThatRepeatAKey verifies a token of Kubernetes' generator by key sets that have its key
// twice: the one that kube-apiserver serves if its files hold the private and the public key, and
// the one that the set-up guide of AWS' pod identity webhook (SELF_HOSTED_SETUP.md) makes of a
// cluster's key, once by name and once without.
func TestKeySetsThatRepeatAKey(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	generator, err := serviceaccount.JWTTokenGenerator("https://issuer.example", private)
	if err != nil {
		t.Fatal(err)
	}
	token, err := generator.GenerateToken(t.Context(), &jwt.Claims{Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	set := served(t, append(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...))
	var named jose.JSONWebKeySet
	if err := json.Unmarshal(set, &named); err != nil || len(named.Keys) != 2 {
		t.Fatalf("%d keys, %v, want one twice", len(named.Keys), err)
	}
	unnamed := named.Keys[0]
	unnamed.KeyID = ""
	irsa, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{named.Keys[0], unnamed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string][]byte{"kube-apiserver": set, "pod identity webhook": irsa} {
		t.Run(name, func(t *testing.T) {
			keys, err := jws.ParseJWKS(set)
			if err != nil || len(keys) != 1 {
				t.Fatalf("%d keys, %v, want 1", len(keys), err)
			}
			one, err := jws.NewStaticKeySet(keys...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jws.VerifySignature(t.Context(), token, one); err != nil {
				t.Error(err)
			}
			if _, err := jws.VerifySignature(t.Context(), token[:len(token)-8]+"AAAAAAAA", one); err == nil {
				t.Error("another signature verifies")
			}
		})
	}
}
