package tpm_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// A verifier keeps its own policy: later changes to the caller's admit no machine.
func TestVerifierCopiesItsPolicy(t *testing.T) {
	s := newStage(t, plainNode)
	config := s.plane.Config
	policy := *config.Policy
	policy.SignerNames = slices.Clone(policy.SignerNames)
	served := slices.Index(policy.SignerNames, s.good.Spec.SignerName)
	policy.SignerNames[served] = "cluster.x-k8s.io/kube-apiserver-client-kubelet-other"
	config.Policy = &policy
	v := newVerifier(t, &config)
	if _, err := v.Verify(t.Context(), s.good); !errors.Is(err, csr.ErrOtherSigner) {
		t.Fatalf("a signer that is not served: got %v, want %v", err, csr.ErrOtherSigner)
	}
	policy.SignerNames[served] = s.good.Spec.SignerName
	policy.MaxLifetime = 240 * time.Hour
	if _, err := v.Verify(t.Context(), s.good); !errors.Is(err, csr.ErrOtherSigner) {
		t.Errorf("after its maker's policy has changed: got %v, want %v", err, csr.ErrOtherSigner)
	}
}

// A verifier may be made before its ring has been read: until then all is tried again.
func TestVerifierOfAnUnreadRing(t *testing.T) {
	s := newStage(t, plainNode)
	config := s.plane.Config
	ring := new(attest.KeyRing)
	config.KeyRing = ring
	v := newVerifier(t, &config)
	hello, err := s.node.Hello(t.Context(), s.plane.Now())
	testkit.NoError(t, err)
	_, challenge := v.Challenge(t.Context(), hello)
	_, verify := v.Verify(t.Context(), s.good)
	for _, err := range []error{challenge, verify} {
		if !errors.Is(err, refusal.Check("ring-stale")) || csr.Decide(err).Verdict != csr.VerdictRetry {
			t.Errorf("got %v, want %v to be tried again", err, refusal.Check("ring-stale"))
		}
	}
	testkit.NoError(t, ring.Refresh([]attest.RingKey{attest.NewRingKey(s.plane.Now().Add(-time.Minute))}, s.plane.Now()))
	if _, err := v.Challenge(t.Context(), hello); err != nil {
		t.Errorf("after the first reading: %v", err)
	}
}
