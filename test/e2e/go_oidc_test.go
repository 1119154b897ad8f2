package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
)

// verifyWithGoOIDC has go-oidc find the keys by discovery and verify a token.
func verifyWithGoOIDC(t *testing.T, issuer, audience string, ca *x509.Certificate, token string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	ctx := oidc.ClientContext(t.Context(), &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}})
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(audience string) error {
		_, err := provider.Verifier(&oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{oidc.ES256}}).Verify(ctx, token)
		return err
	}
	if err := verify(audience); err != nil {
		t.Errorf("go-oidc: %v", err)
	}
	if err := verify("another"); err == nil {
		t.Error("go-oidc takes it for another audience")
	}
}
