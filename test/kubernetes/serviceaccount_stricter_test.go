package kubernetes

import (
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
)

// TestServiceAccountStricter: what apiserver.Validator's comment says that it refuses and Kubernetes
// accepts, of tokens that no API server signs.
func TestServiceAccountStricter(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{release: releases[0]}
	if b.public, err = serviceaccount.StaticPublicKeysGetter([]any{&key.PublicKey}); err != nil {
		t.Fatal(err)
	}
	if b.signer, err = jws.NewSigner(key, jws.SignerOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.keys, err = jws.NewStaticKeySet(b.signer.Key()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	o := &objects{account: slot{Object: claims.Object{Namespace: "ns", Name: "app", UID: "app-uid"}}}
	set := &claims.Claims{Issuer: issuer, Audiences: []string{apiAudience}, Expiry: claims.NewNumericDate(now.Add(time.Hour)),
		Kubernetes: claims.Private{Namespace: "ns", ServiceAccount: claims.Ref{Name: "app", UID: "app-uid"}}}
	payload, err := set.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Replace(string(payload), `"iss":`, `"long":"`+strings.Repeat("x", claims.MaxClaimsSize)+`","iss":`, 1)
	var deep any = "x"
	for range 40 {
		deep = []any{deep}
	}
	for name, test := range map[string]struct {
		algorithm jose.SignatureAlgorithm
		payload   string
		header    map[jose.HeaderKey]any
		both      bool
	}{
		"a good one":           {jose.RS256, string(payload), nil, true},
		"another type":         {jose.RS256, string(payload), map[jose.HeaderKey]any{"typ": "at+jwt"}, true},
		"a longer hash":        {jose.RS512, string(payload), nil, false},
		"another padding":      {jose.PS256, string(payload), nil, false},
		"claims that are long": {jose.RS256, long, nil, false},
		"crit":                 {jose.RS256, string(payload), map[jose.HeaderKey]any{"crit": []string{}}, false},
		"b64":                  {jose.RS256, string(payload), map[jose.HeaderKey]any{"b64": true}, false},
		"jwk":                  {jose.RS256, string(payload), map[jose.HeaderKey]any{"jwk": nil}, false},
		"kid":                  {jose.RS256, string(payload), map[jose.HeaderKey]any{"kid": nil}, false},
		"typ":                  {jose.RS256, string(payload), map[jose.HeaderKey]any{"typ": 5}, false},
		"two cases":            {jose.RS256, string(payload), map[jose.HeaderKey]any{"Alg": "none"}, false},
		"nested":               {jose.RS256, string(payload), map[jose.HeaderKey]any{"x": deep}, false},
	} {
		t.Run(name, func(t *testing.T) {
			signer, err := jose.NewSigner(jose.SigningKey{Algorithm: test.algorithm, Key: key}, &jose.SignerOptions{ExtraHeaders: test.header})
			if err != nil {
				t.Fatal(err)
			}
			signed, err := signer.Sign([]byte(test.payload))
			if err != nil {
				t.Fatal(err)
			}
			token, err := signed.CompactSerialize()
			if err != nil {
				t.Fatal(err)
			}
			their := b.theirs(o, token, nil)
			our, _ := b.ours(o, token, nil)
			if !their.OK || our.OK != test.both {
				t.Errorf("%s: Kubernetes %+v, ours %+v", token[:40], their, our)
			}
		})
	}
}
