package tpm

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
	ek := ekVerifierOf(t, trusting(EKProfileTCG(), root))
	long := strings.Repeat("c", MaxClusterIDSize)
	for name, c := range map[string]struct {
		change func(*VerifierConfig)
		ok     bool
	}{
		"no ClusterIDs":               {func(c *VerifierConfig) { c.ClusterIDs = nil }, false},
		"an empty cluster ID":         {func(c *VerifierConfig) { c.ClusterIDs = []string{""} }, false},
		"an empty one after another":  {func(c *VerifierConfig) { c.ClusterIDs = []string{"c", ""} }, false},
		"a cluster ID no UTF-8":       {func(c *VerifierConfig) { c.ClusterIDs = []string{"\xff"} }, false},
		"the longest cluster ID":      {func(c *VerifierConfig) { c.ClusterIDs = []string{"c", long} }, true},
		"a longer one":                {func(c *VerifierConfig) { c.ClusterIDs = []string{"c", long + "c"} }, false},
		"no KeyRing":                  {func(c *VerifierConfig) { c.KeyRing = nil }, false},
		"a zero KeyRing":              {func(c *VerifierConfig) { c.KeyRing = &KeyRing{} }, false},
		"a KeyRing not read yet":      {func(c *VerifierConfig) { c.KeyRing = NewUnreadKeyRing() }, true},
		"no road":                     {func(c *VerifierConfig) { c.Issuers = nil }, false},
		"road EK alone":               {func(c *VerifierConfig) { c.Issuers, c.EKs = nil, ek }, true},
		"both roads":                  {func(c *VerifierConfig) { c.EKs = ek }, true},
		"a zero issuer":               {func(c *VerifierConfig) { c.Issuers = []Issuer{{}} }, false},
		"a zero issuer after another": {func(c *VerifierConfig) { c.Issuers = []Issuer{c.Issuers[0], {}} }, false},
		"OtherNames of two roots": {func(c *VerifierConfig) {
			one, two := c.Issuers[0], c.Issuers[0]
			one.Profile.Identity, two.Profile.Identity = []IdentitySource{OtherNameIdentity{}}, []IdentitySource{OtherNameIdentity{}}
			two.Roots = []*x509.Certificate{sign(t, nil, "another root", nil).cert}
			c.Issuers = []Issuer{one, two}
		}, false},
		"no Policy":                 {func(c *VerifierConfig) { c.Policy = nil }, false},
		"a zero Policy":             {func(c *VerifierConfig) { c.Policy = &csr.Policy{} }, false},
		"no Authorizer":             {func(c *VerifierConfig) { c.Authorizer = nil }, false},
		"a nil function":            {func(c *VerifierConfig) { c.Authorizer = AuthorizerFunc(nil) }, false},
		"a nil pointer":             {func(c *VerifierConfig) { c.Authorizer = (*checkedAuthorizer)(nil) }, false},
		"one that never fits":       {func(c *VerifierConfig) { c.Authorizer = &checkedAuthorizer{err: errors.New("never fits")} }, false},
		"one that fits":             {func(c *VerifierConfig) { c.Authorizer = &checkedAuthorizer{} }, true},
		"the challenge signer":      {func(c *VerifierConfig) { c.ChallengeSigner = csr.SignerChallengeTPM }, true},
		"another provider's":        {func(c *VerifierConfig) { c.ChallengeSigner = strings.TrimSuffix(csr.SignerChallengeTPM, "tpm") + "gke" }, true},
		"a signer of certificates":  {func(c *VerifierConfig) { c.ChallengeSigner = csr.SignerClientTPM }, false},
		"a signer without provider": {func(c *VerifierConfig) { c.ChallengeSigner = strings.TrimSuffix(csr.SignerChallengeTPM, "tpm") }, false},
		"a provider's name alone":   {func(c *VerifierConfig) { c.ChallengeSigner = "tpm" }, false},
		"a signer in capitals":      {func(c *VerifierConfig) { c.ChallengeSigner = strings.TrimSuffix(csr.SignerChallengeTPM, "tpm") + "TPM" }, false},
		"the longest Window":        {func(c *VerifierConfig) { c.Window = MaxWindow }, true},
		"a second longer":           {func(c *VerifierConfig) { c.Window = MaxWindow + time.Second }, false},
		"the shortest Window":       {func(c *VerifierConfig) { c.Window = time.Second }, true},
		"a Window below nothing":    {func(c *VerifierConfig) { c.Window = -time.Second }, false},
		"a part of a second":        {func(c *VerifierConfig) { c.Window = time.Millisecond }, false},
		"seconds and a part of one": {func(c *VerifierConfig) { c.Window = time.Minute + time.Nanosecond }, false},
		"a Window of the default":   {func(c *VerifierConfig) { c.Window = DefaultWindow }, true},
		"a policy over quotes":      {func(c *VerifierConfig) { c.RequireTPMResident = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			c.change(&config)
			if v, err := NewVerifier(&config); (err == nil) != c.ok || (v != nil) != c.ok {
				t.Errorf("got %v, want accepted: %t", err, c.ok)
			}
		})
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
