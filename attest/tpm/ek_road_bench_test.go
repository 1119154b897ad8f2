package tpm_test

import (
	"context"
	"crypto/x509"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// roadEKBench is a hello and an answer on the EK's road.
func roadEKBench(t testing.TB, ek tpmkind.EKOrigin) (*attesttest.ControlPlane, *csr.Request, *csr.Request) {
	t.Helper()
	device := tpmsim.New(t, everyEK())
	s := newStage(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: ek, AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
	hello, err := s.node.Hello(context.Background(), s.plane.Now())
	testkit.NoError(t, err)
	return s.plane, hello, s.good
}

func BenchmarkRoadEK(b *testing.B) {
	for name, ek := range ekOrigins() {
		b.Run(name, func(b *testing.B) {
			plane, hello, answer := roadEKBench(b, ek)
			b.Run("challenge", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := plane.Verifier.Challenge(context.Background(), hello); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("verify", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := plane.Verifier.Verify(context.Background(), answer); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("bare", func(b *testing.B) { bareOperations(b, answer) })
		})
	}
}

// bareOperations are the parsing and the public-key operations that every verifier of such an
// answer needs, but for the AK's signature, which costs the same as the request's: the same curve.
func bareOperations(b *testing.B, answer *csr.Request) {
	p := takeApart(b, answer)
	middle, err := x509.ParseCertificate(p.att.Certificates[1])
	testkit.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		request, err := x509.ParseCertificateRequest(p.bundle.Request)
		testkit.NoError(b, err)
		leaf, err := x509.ParseCertificate(p.att.Certificates[0])
		testkit.NoError(b, err)
		for range 2 {
			testkit.NoError(b, request.CheckSignature())
		}
		testkit.NoError(b, leaf.CheckSignatureFrom(middle))
	}
}

// The allocations of a challenge and a verification are bounded.
func TestAllocationsOfRoadEK(t *testing.T) {
	plane, hello, answer := roadEKBench(t, tpmkind.EKP256())
	challenge := testing.AllocsPerRun(100, func() {
		if _, err := plane.Verifier.Challenge(context.Background(), hello); err != nil {
			t.Fatal(err)
		}
	})
	verify := testing.AllocsPerRun(100, func() {
		if _, err := plane.Verifier.Verify(context.Background(), answer); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("challenge %.0f, verify %.0f", challenge, verify)
	if challenge > maxChallengeAllocs {
		t.Errorf("a challenge allocates %.0f times, at most %d", challenge, maxChallengeAllocs)
	}
	if verify > maxVerifyAllocs {
		t.Errorf("a verification allocates %.0f times, at most %d", verify, maxVerifyAllocs)
	}
}

const (
	maxChallengeAllocs = 590
	maxVerifyAllocs    = 205
)
