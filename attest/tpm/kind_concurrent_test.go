package tpm_test

import (
	"context"
	"crypto/x509"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// One verifier and one CA serve many goroutines, while the ring is refreshed and
// the memory of intermediates is emptied.
func TestVerifierFromManyGoroutines(t *testing.T) {
	s := newStage(t, plainNode)
	ctx := context.Background()
	now := s.plane.Now()
	key := attest.NewRingKey(now.Add(-time.Hour))
	ring := new(attest.KeyRing)
	testkit.NoError(t, ring.Refresh([]attest.RingKey{key}, now))
	config := s.plane.Config
	config.KeyRing = ring
	v := newVerifier(t, &config)
	hello, err := s.node.Hello(ctx, now)
	testkit.NoError(t, err)
	challenge, err := v.Challenge(ctx, hello)
	testkit.NoError(t, err)
	good, err := s.node.Answer(ctx, challenge, s.plane.Now())
	testkit.NoError(t, err)
	p := takeApart(t, good)
	p.binding.Nonce[0] ^= 1
	bad := p.together(t)

	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			for range 20 {
				switch n {
				case 0:
					if err := ring.Refresh([]attest.RingKey{key, attest.NewRingKey(now)}, s.plane.Now()); err != nil {
						t.Error(err)
					}
				case 1:
					s.plane.Config.Kinds[0].(*tpmkind.Kind).ForgetSignatures(true)
				case 2:
					if _, err := v.Verify(ctx, bad); !errors.Is(err, attest.CheckQualifyingData) {
						t.Error(err)
					}
				case 3:
					if _, err := v.Challenge(ctx, hello); err != nil {
						t.Error(err)
					}
				default:
					r, err := v.Verify(ctx, good)
					if err != nil {
						t.Error(err)
						continue
					}
					if _, err := s.plane.CA.Issue(ctx, r.Attested()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
}

// A verification allocates little more than the standard library's part of it.
func TestVerifyAllocates(t *testing.T) {
	s := newStage(t, plainNode)
	p := takeApart(t, s.good)
	leaf, err := x509.ParseCertificate(p.att.Certificates[0])
	testkit.NoError(t, err)
	middle, err := x509.ParseCertificate(p.att.Certificates[1])
	testkit.NoError(t, err)
	library := testing.AllocsPerRun(50, func() {
		request, err1 := x509.ParseCertificateRequest(p.bundle.Request)
		_, err2 := x509.ParseCertificate(leaf.Raw)
		err3 := leaf.CheckSignatureFrom(middle)
		testkit.NoError(t, errors.Join(err1, err2, err3, request.CheckSignature()))
	})
	ours := testing.AllocsPerRun(50, func() {
		if _, err := s.plane.Verifier.Verify(context.Background(), s.good); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%v objects, the library's part %v", ours, library)
	if ours > library+40 {
		t.Errorf("a verification allocates %v objects, the library's part of it %v: want at most 40 more", ours, library)
	}
}

// A context that is over decides nothing.
func TestVerifyCancelled(t *testing.T) {
	s := newStage(t, plainNode)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.plane.Verifier.Verify(ctx, s.good); !errors.Is(err, context.Canceled) || csr.Decide(err).Verdict != csr.VerdictRetry {
		t.Errorf("got %v", err)
	}
	if _, err := s.node.Answer(ctx, s.challenge, s.plane.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("the node: got %v", err)
	}
	noHandles(t, s.node.TPM)
}
