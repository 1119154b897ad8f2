package tpm_test

import (
	"context"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// helloBench is a hello with what challenging it cannot do without.
type helloBench struct {
	plane   *attesttest.ControlPlane
	hello   *csr.Request
	request *x509.CertificateRequest
	leaf    *x509.Certificate // of the AK, on the road of the EK of the EK
	middle  *x509.Certificate
	root    *x509.Certificate
	road    attest.Road
}

func newHelloBench(t testing.TB, opts attesttest.NodeOptions) *helloBench {
	t.Helper()
	node := attesttest.NewNode(t, opts)
	h := &helloBench{plane: attesttest.NewControlPlane(t, node), road: opts.Road, root: node.TPM.CA().Root()}
	var err error
	if h.hello, err = node.Hello(context.Background(), h.plane.Now()); err != nil {
		t.Fatal(err)
	}
	bundle, err := csr.Parse(h.hello.Spec.Request)
	testkit.NoError(t, err)
	evidence, err := message.ParseBundle(bundle.Data)
	testkit.NoError(t, err)
	if h.request, err = x509.ParseCertificateRequest(bundle.Request); err != nil {
		t.Fatal(err)
	}
	if h.leaf, err = x509.ParseCertificate(evidence.Certificates[0]); err != nil {
		t.Fatal(err)
	}
	if h.middle, err = x509.ParseCertificate(evidence.Certificates[1]); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *helloBench) challenge(t testing.TB) {
	if _, err := h.plane.Verifier.Challenge(context.Background(), h.hello); err != nil {
		t.Fatal(err)
	}
}

// operations are the public-key operations of a verifier without a memory: the request's
// and the leaf's signature, and for an EK the encryption of a seed to it.
func (h *helloBench) operations(t testing.TB) {
	testkit.NoError(t, h.request.CheckSignature())
	testkit.NoError(t, h.leaf.CheckSignatureFrom(h.middle))
	if h.road == attest.RoadEK {
		testkit.NoError(t, encryptSeed(h.leaf.PublicKey))
	}
}

func encryptSeed(ek any) error {
	switch k := ek.(type) {
	case *rsa.PublicKey:
		_, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, k, make([]byte, sha256.Size), []byte("IDENTITY\x00"))
		return err
	case *ecdsa.PublicKey:
		public, err := k.ECDH()
		if err != nil {
			return err
		}
		var ephemeral *ecdh.PrivateKey
		if ephemeral, err = public.Curve().GenerateKey(rand.Reader); err != nil {
			return err
		}
		_, err = ephemeral.ECDH(public)
		return err
	}
	return nil
}

func (h *helloBench) parsing(t testing.TB) {
	if _, err := x509.ParseCertificateRequest(h.request.Raw); err != nil {
		t.Fatal(err)
	}
	if _, err := x509.ParseCertificate(h.leaf.Raw); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkChallenge gives, by turns, the cost of a challenge as a multiple of its bare
// public-key operations (x-ops), and of those and the standard library's parsing
// (x-ops+parse). "machine" is a verifier that has seen the intermediate before, with another
// machine; "again" one that has seen this machine's certificate too.
func BenchmarkChallenge(b *testing.B) {
	device := tpmsim.New(b, everyEK())
	ecc := tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}
	for name, opts := range map[string]attesttest.NodeOptions{
		"AK":         {TPM: device},
		"EK-RSA2048": {TPM: device, Road: attest.RoadEK, EK: tpmkind.EKRSA2048(), AK: ecc},
		"EK-P256":    {TPM: device, Road: attest.RoadEK, EK: tpmkind.EKP256(), AK: ecc},
	} {
		h := newHelloBench(b, opts)
		kind := h.plane.Config.Kinds[0].(*tpmkind.Kind)
		for row, before := range map[string]func(){"/machine": func() { kind.ForgetSignatures(false) }, "/again": func() {}} {
			b.Run(name+row, func(b *testing.B) {
				tpmlab.ByTurns(b, before, []string{"x-ops", "x-ops+parse"},
					func() { h.challenge(b) },
					func() { h.operations(b) },
					func() { h.parsing(b); h.operations(b) })
			})
		}
	}
}

// The allocations of a challenge are bounded, on each road.
func TestAllocationsOfChallenges(t *testing.T) {
	device := tpmsim.New(t, everyEK())
	for name, c := range map[string]struct {
		opts  attesttest.NodeOptions
		limit float64
	}{
		"AK":         {attesttest.NodeOptions{TPM: device}, 145},
		"EK-RSA2048": {attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpmkind.EKRSA2048()}, 400},
		"EK-P256":    {attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpmkind.EKP256()}, 590},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHelloBench(t, c.opts)
			got := testing.AllocsPerRun(100, func() { h.challenge(t) })
			t.Logf("%s: %.0f", name, got)
			if got > c.limit {
				t.Errorf("%s: a challenge allocates %.0f times, at most %.0f", name, got, c.limit)
			}
		})
	}
}
