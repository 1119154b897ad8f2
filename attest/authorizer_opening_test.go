package attest

import (
	"context"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestOpeningMaxLifetime: an authorizer is told how long Kubernetes' own signers' certificates may
// last, and nothing where they are not served.
func TestOpeningMaxLifetime(t *testing.T) {
	own := testkit.Must(csr.PurposeClient.SignerName("fake"))
	for name, c := range map[string]struct {
		signers []string
		longest time.Duration
		want    time.Duration
	}{
		"ours":                 {nil, 48 * time.Hour, 0},
		"Kubernetes', default": {[]string{csr.SignerKubeAPIServerClientKubelet}, 0, 24 * time.Hour},
		"Kubernetes'":          {[]string{csr.SignerKubeAPIServerClientKubelet}, 48 * time.Hour, 48 * time.Hour},
		"Kubernetes' serving":  {[]string{csr.SignerKubeletServing}, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			asked, config := &checkedAuthorizer{}, fakeConfig(t, &fakeKind{})
			config.Authorizer, config.Policy = asked, config.Policy.Clone()
			config.Policy.SignerNames, config.Policy.MaxLifetime = append(c.signers, own), c.longest
			config.Policy.IssuedRecord = func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) { return nil, csr.ErrNoRecord }
			if _, err := NewVerifier(config); err != nil || asked.opened.MaxLifetime != c.want {
				t.Errorf("got %s, %v, want %s", asked.opened.MaxLifetime, err, c.want)
			}
		})
	}
}
