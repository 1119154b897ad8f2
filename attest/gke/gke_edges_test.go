package gke

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
)

// Issuers whose names of machines could be the same are no configuration.
func TestGKEIssuersWithOneName(t *testing.T) {
	f := newGKEFixture(t, true)
	other := sign(t, nil, "another fleet", nil)
	i := f.config.Issuers[0]
	i.Profile.Identity = []tpmcert.IdentitySource{tpmcert.OtherNameIdentity{Issuer: "fleet"}, tpmcert.AKIdentity{}}
	j := i
	j.Roots, j.Intermediates = []*x509.Certificate{other.cert}, nil
	f.config.Issuers = []tpmcert.Issuer{i}
	f.provider(t)
	f.config.Issuers = []tpmcert.Issuer{i, j}
	if p, err := NewProvider(f.config); err == nil || p != nil {
		t.Errorf("got %v, %v", p, err)
	}
}

// A request that was given up while the platform was asked goes no further.
func TestGKERequestThatIsGivenUp(t *testing.T) {
	f := newGKEFixture(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	f.config.AKPublicKey = func(context.Context, csr.GKEIdentity) (crypto.PublicKey, error) {
		cancel()
		return f.ak.private.Public(), nil
	}
	asked := false
	f.config.SecondProof = secondProofFunc(func(*LimitedSubject) (*LimitedProof, error) {
		asked = true
		return nil, errors.New("asked")
	})
	_, err := f.provider(t).VerifyClientAttestationData(ctx, f.file(t).Parsed())
	if !errors.Is(err, context.Canceled) || !errors.Is(err, csr.ErrRetry) || asked {
		t.Errorf("got %v, second proof asked for: %v", err, asked)
	}
}
