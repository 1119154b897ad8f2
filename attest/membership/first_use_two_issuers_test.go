package membership_test

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// One attestation key has certificates of two issuers. Where they name machines by different
// fields, it gets no name by trust on first use, whether NewVerifier is asked or not; where by
// the same, it gets one.
func TestTwoIssuersOfOneKey(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	attesttest.NewNode(t, attesttest.NodeOptions{TPM: device}) // whose AK the certificates are for
	now := time.Now().Truncate(time.Second)
	for name, c := range map[string]struct {
		fields [2]string
		want   error // of the second name
		refuse error // at construction
	}{
		"different fields": {[2]string{"a", "b"}, membership.CheckRegistryScope, membership.CheckRegistryScope},
		"the same field":   {[2]string{"a", "a"}, attest.Check("registry-machine"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var config tpmkind.KindConfig
			var nodes [2]*attesttest.Node
			for i, field := range c.fields {
				ca := tpmlab.Sign(t, nil, "AK CA", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-time.Hour), now.Add(time.Hour) })
				made := testkit.Must(tpmcert.CreateAKCertificate(t.Context(), tpmcert.AKTemplate{Key: device.AKCertificate(tpmsim.RSA2048).PublicKey, PermanentIdentifier: "the machine",
					NotBefore: now.Add(-time.Minute), NotAfter: now.Add(30 * time.Minute)}, ca.Cert, ca.Key))
				profile := tpmcert.ProfileTCG()
				profile.Identity, profile.OneAKPerMachine = []tpmcert.IdentitySource{tpmcert.OtherNameIdentity{Issuer: field}}, true
				if i == 0 || field != c.fields[0] {
					config.AKIssuers = append(config.AKIssuers, tpmcert.Issuer{Profile: profile})
				}
				last := &config.AKIssuers[len(config.AKIssuers)-1]
				last.Roots = append(last.Roots, ca.Cert)
				nodes[i] = attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Name: []string{"node-1", "node-2"}[i], Certificates: tpmcert.CertificatesDER(made.Chain)})
			}
			kind := testkit.Must(tpmkind.NewKind(config))
			plane := attesttest.NewControlPlane(t, nodes[0], nodes[1])
			registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID}, membership.RegistryOptions{Now: plane.Now}))
			firstUse := testkit.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour, Now: plane.Now,
				NodeExists: func(context.Context, string) (bool, error) { return false, nil }}))
			verifier := plane.Config
			verifier.Kinds, verifier.Authorizer = []attest.Kind{kind}, firstUse
			if _, err := attest.NewVerifier(verifier); !errors.Is(err, c.refuse) || err != nil && c.refuse == nil {
				t.Errorf("got %v, want %v", err, c.refuse)
			}
			verifier.Authorizer = attest.AuthorizerFunc(firstUse.Authorize) // which hides the question
			plane.Verifier = testkit.Must(attest.NewVerifier(verifier))
			if err := joinWithoutID(t, plane, nodes[0]); (err != nil) != (c.refuse != nil) {
				t.Errorf("the first name: got %v", err)
			}
			if err := joinWithoutID(t, plane, nodes[1]); !errors.Is(err, c.want) {
				t.Errorf("the second name: got %v, want %v", err, c.want)
			} else if c.refuse != nil && csr.Decide(err).Verdict != csr.VerdictRetry {
				t.Errorf("the second name: %v is denied, for the configuration's fault", err)
			}
		})
	}
}
