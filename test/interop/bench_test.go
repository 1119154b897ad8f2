package interop

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	josejwt "github.com/go-jose/go-jose/v4/jwt"
	"github.com/golang-jwt/jwt/v5"
	capjwt "github.com/hashicorp/cap/jwt"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
)

const (
	benchIssuer   = "https://issuer.example"
	benchAudience = "https://api.example"
)

// contest is one token, and who validates it.
type contest struct {
	token  string
	public crypto.PublicKey
	raw    func() bool
	rows   []contestant
}

// A contestant validates the token: signature, issuer, audience and times. Ours also
// holds the token against the objects that it names.
type contestant struct {
	name     string
	validate func() error
}

func newContest(t testing.TB, private crypto.Signer) *contest {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	signer, err := jws.NewSigner(private, jws.SignerOptions{})
	must(err)
	keys, err := jws.NewStaticKeySet(signer.Key())
	must(err)
	objects := &claims.MemoryObjects{}
	object := func(name string) claims.Object {
		return claims.Object{Namespace: "default", Name: name, UID: name + "-uid"}
	}
	objects.Put("serviceaccounts", object("builder"))
	objects.Put("nodes", claims.Object{Name: "node-1", UID: "node-1-uid"})
	objects.Put("pods", claims.Object{Namespace: "default", Name: "pod-1", UID: "pod-1-uid", ServiceAccountName: "builder", NodeName: "node-1"})
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer: benchIssuer, APIAudiences: []string{benchAudience}, Signer: signer, Objects: objects,
	})
	must(err)
	issued, err := issuer.Issue(t.Context(), &apiserver.TokenRequest{Namespace: "default", Name: "builder",
		BoundObject: &apiserver.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod-1"}})
	must(err)
	strict, err := claims.NewValidator(claims.ValidatorConfig{Issuers: map[string]jws.KeySet{benchIssuer: keys}, Objects: objects,
		Audiences: []string{benchAudience}, InsecureAllowReplay: true})
	must(err)
	lenient, err := apiserver.NewValidator(apiserver.ValidatorConfig{Issuers: []string{benchIssuer}, Keys: keys,
		Objects: objects, Audiences: []string{benchAudience}})
	must(err)
	c := &contest{token: issued.Token.Reveal(), public: private.Public()}
	c.raw = rawCheck(t, c.token, c.public)
	ctx := context.Background()
	algorithm := string(signer.Key().Algorithm())
	capSet, err := capjwt.NewStaticKeySet([]crypto.PublicKey{c.public})
	must(err)
	capValidator, err := capjwt.NewValidator(capSet)
	must(err)
	oidcVerifier := oidc.NewVerifier(benchIssuer, &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{c.public}},
		&oidc.Config{ClientID: benchAudience, SupportedSigningAlgs: []string{algorithm}})
	golang := jwt.NewParser(jwt.WithValidMethods([]string{algorithm}), jwt.WithIssuer(benchIssuer), jwt.WithAudience(benchAudience))
	c.rows = []contestant{
		{"nodeattest strict", func() error { _, err := strict.Validate(ctx, c.token); return err }},
		{"nodeattest as kube-apiserver", func() error { _, err := lenient.Validate(ctx, c.token); return err }},
		{"go-oidc", func() error { _, err := oidcVerifier.Verify(ctx, c.token); return err }},
		{"cap", func() error {
			_, err := capValidator.Validate(ctx, c.token, capjwt.Expected{Issuer: benchIssuer, Audiences: []string{benchAudience}, SigningAlgorithms: []capjwt.Alg{capjwt.Alg(algorithm)}})
			return err
		}},
		{"golang-jwt", func() error {
			_, err := golang.ParseWithClaims(c.token, &jwt.RegisteredClaims{}, func(*jwt.Token) (any, error) { return c.public, nil })
			return err
		}},
		{"go-jose", func() error {
			parsed, err := josejwt.ParseSigned(c.token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(algorithm)})
			if err != nil {
				return err
			}
			var registered josejwt.Claims
			if err := parsed.Claims(c.public, &registered); err != nil {
				return err
			}
			return registered.Validate(josejwt.Expected{Issuer: benchIssuer, AnyAudience: josejwt.Audience{benchAudience}, Time: time.Now()})
		}},
	}
	return c
}

// rawCheck is the check of the signature and nothing else.
func rawCheck(t testing.TB, token string, public crypto.PublicKey) func() bool {
	t.Helper()
	end := strings.LastIndexByte(token, '.')
	input := []byte(token[:end])
	signature, err := base64.RawURLEncoding.DecodeString(token[end+1:])
	if err != nil {
		t.Fatal(err)
	}
	switch public := public.(type) {
	case *ecdsa.PublicKey:
		r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
		return func() bool {
			digest := sha256.Sum256(input)
			return ecdsa.Verify(public, digest[:], r, s)
		}
	case *rsa.PublicKey:
		return func() bool {
			digest := sha256.Sum256(input)
			return rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], signature) == nil
		}
	}
	t.Fatalf("a key of type %T", public)
	return nil
}

func contests(t testing.TB) map[string]*contest {
	t.Helper()
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*contest{"ES256": newContest(t, p256), "RS256": newContest(t, rsa2048)}
}

// TestContest sees that all who are measured accept the token and refuse another.
func TestContest(t *testing.T) {
	for name, c := range contests(t) {
		if !c.raw() {
			t.Errorf("%s: the raw check refuses", name)
		}
		good := c.token
		payload := strings.Index(good, ".") + 10
		for _, row := range c.rows {
			if err := row.validate(); err != nil {
				t.Errorf("%s: %s: %v", name, row.name, err)
			}
			c.token = good[:payload] + "A" + good[payload+1:]
			if c.token != good && row.validate() == nil {
				t.Errorf("%s: %s takes another token", name, row.name)
			}
			c.token = good
		}
	}
}

// BenchmarkValidate runs all by turns, and gives the fastest turn of each as a multiple
// of the fastest of the raw check: what else the machine does slows some turns of each.
func BenchmarkValidate(b *testing.B) {
	for name, c := range contests(b) {
		b.Run(name, func(b *testing.B) {
			raw := contestant{"raw", func() error { c.raw(); return nil }}
			rows := append([]contestant{raw}, c.rows...)
			fastest := make([]time.Duration, len(rows))
			for b.Loop() {
				for i, row := range rows {
					if took := turn(b, row); fastest[i] == 0 || took < fastest[i] {
						fastest[i] = took
					}
				}
			}
			for i, row := range c.rows {
				b.ReportMetric(float64(fastest[i+1])/float64(fastest[0]), strings.ReplaceAll(row.name, " ", "-")+"/raw")
			}
		})
	}
}

// turn is how long one contestant takes for some tokens.
func turn(b *testing.B, row contestant) time.Duration {
	began := time.Now()
	for range 20 {
		if err := row.validate(); err != nil {
			b.Fatal(row.name, err)
		}
	}
	return time.Since(began)
}
