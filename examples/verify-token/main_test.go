package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

const audience = "https://shop.example"

// cluster is an issuer with its discovery document.
func cluster(t *testing.T) (*httptest.Server, *apiserver.Issuer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jws.NewSigner(key, jws.SignerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := jws.MarshalJWKS([]*jws.Key{signer.Key()})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, server.URL, server.URL+"/openid/v1/jwks")
	})
	mux.HandleFunc("/openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
	objects := &claims.MemoryObjects{}
	objects.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart", UID: "1"})
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Policy: apiserver.Policy{Issuer: server.URL, APIAudiences: []string{"api"}}, Signer: signer, Objects: objects,
	})
	if err != nil {
		t.Fatal(err)
	}
	return server, issuer
}

func TestRun(t *testing.T) {
	server, issuer := cluster(t)
	issue := func(audience string, seconds int64) string {
		issued, err := issuer.Issue(t.Context(), &apiserver.TokenRequest{
			Namespace: "shop", Name: "cart", Audiences: []string{audience}, ExpirationSeconds: &seconds,
		})
		if err != nil {
			t.Fatal(err)
		}
		return issued.Token.Reveal()
	}
	for _, tt := range []struct {
		name, token string
		args        []string
		want        error
	}{
		{"good", issue(audience, 3600) + "\n", []string{server.URL, audience}, nil},
		{"for another", issue("https://other.example", 3600), []string{server.URL, audience}, claims.CheckAudience},
		{"good for over two hours", issue(audience, 7201), []string{server.URL, audience}, claims.Check("lifetime")},
		{"no token", "x", []string{server.URL, audience}, claims.Check("token")},
		{"of another issuer", issue(audience, 3600), []string{server.URL + "/x", audience}, claims.CheckIssuer},
		{"no audience", "", []string{server.URL, ""}, refusal.CheckConfig},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), server.Client(), tt.args, strings.NewReader(tt.token), &out)
			if !errors.Is(err, tt.want) || tt.want == nil && out.String() != "system:serviceaccount:shop:cart\n" {
				t.Errorf("%q, %v, want %v", out.String(), err, tt.want)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	server, _ := cluster(t)
	for name, args := range map[string][]string{"nothing": nil, "one": {server.URL}, "three": {server.URL, audience, "x"}, "no URL": {"x", audience}} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), server.Client(), args, strings.NewReader(""), nil); err == nil {
				t.Error("taken")
			}
		})
	}
	broken := errors.New("broken")
	if err := run(context.Background(), server.Client(), []string{server.URL, audience}, iotest.ErrReader(broken), nil); !errors.Is(err, broken) {
		t.Error(err)
	}
}
