package attest

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// A verifier that lacks one thing is refused when it is made.
func TestVerifierConfig(t *testing.T) {
	ring, err := NewStaticKeyRing(NewRingKey(chainTime))
	if err != nil {
		t.Fatal(err)
	}
	root := sign(t, nil, "root", nil)
	good := VerifierConfig{
		ClusterIDs: []string{"c"},
		KeyRing:    ring,
		Issuers:    []Issuer{{Roots: []*x509.Certificate{root.cert}, Profile: ProfileTCG()}},
		Policy: &csr.Policy{SignerNames: []string{csr.SignerClientTPM},
			Machines: func(context.Context, string, *csr.Request) (*csr.Machine, error) { return nil, csr.ErrNoMachine }},
		Authorizer: AuthorizerFunc(func(context.Context, *Result, *csr.Request) (*Authorization, error) { return nil, nil }),
	}
	if _, err := NewVerifier(&good); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*VerifierConfig){
		"ClusterIDs":                   func(c *VerifierConfig) { c.ClusterIDs = nil },
		"clusterID":                    func(c *VerifierConfig) { c.ClusterIDs = []string{""} },
		"KeyRing":                      func(c *VerifierConfig) { c.KeyRing = nil },
		"Issuers":                      func(c *VerifierConfig) { c.Issuers = nil },
		"issuer 0":                     func(c *VerifierConfig) { c.Issuers = []Issuer{{}} },
		"Policy":                       func(c *VerifierConfig) { c.Policy = nil },
		"in Policy":                    func(c *VerifierConfig) { c.Policy = &csr.Policy{} },
		"Authorizer":                   func(c *VerifierConfig) { c.Authorizer = nil },
		"in Authorizer: no Authorizer": func(c *VerifierConfig) { c.Authorizer = AuthorizerFunc(nil) },
		"no Authorizer, or a nil one":  func(c *VerifierConfig) { c.Authorizer = (*checkedAuthorizer)(nil) },
		"in Authorizer: never fits": func(c *VerifierConfig) {
			c.Authorizer = &checkedAuthorizer{err: errors.New("never fits")}
		},
		"Window":    func(c *VerifierConfig) { c.Window = MaxWindow + time.Second },
		"Window of": func(c *VerifierConfig) { c.Window = -time.Second },
		"whole":     func(c *VerifierConfig) { c.Window = time.Millisecond },
	} {
		c := good
		change(&c)
		if _, err := NewVerifier(&c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := NewVerifier(nil); err == nil {
		t.Error("no configuration: accepted")
	}
	v, err := NewVerifier(&good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(context.Background(), nil); err == nil {
		t.Error("no request: accepted")
	}
	if _, err := v.Challenge(context.Background(), nil); err == nil {
		t.Error("no hello: accepted")
	}
	if _, err := v.Verify(context.Background(), &csr.Request{}); csr.Decide(err).Verdict != csr.VerdictDeny {
		t.Errorf("a zero request: %v", err)
	}
}
