package tpm

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func readChainAbove(t testing.TB, tpm transport.TPM, leaf []byte) ([][]byte, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([][]byte, error) { return ekChainOf(ctx, h, leaf) })
}

// The chain is read from whatever indexes the TPM has, and ordered for the leaf.
func TestReadEKChain(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	root := tpmlab.Sign(t, nil, "root", nil)
	upper := tpmlab.Sign(t, root, "upper", nil)
	lower := tpmlab.Sign(t, upper, "lower", nil)
	leaf := tpmlab.EKCertificate(t, lower, tpmlab.NewP256(t).Public(), nil)

	if above, err := readChainAbove(t, tpm, leaf.Raw); err != nil || above != nil {
		t.Errorf("none in NV: %d, %v", len(above), err)
	}
	tpmlab.WriteNV(t, tpm, 0x01c00200, []byte("after the range"))
	tpmlab.WriteNV(t, tpm, 0x01c00100, root.Cert.Raw)
	tpmlab.WriteNV(t, tpm, 0x01c00107, append(bytes.Clone(upper.Cert.Raw), 0xff, 0xff))
	tpmlab.WriteNV(t, tpm, 0x01c001ff, lower.Cert.Raw)
	above, err := readChainAbove(t, tpm, leaf.Raw)
	if err != nil || len(above) != 2 || !bytes.Equal(above[0], lower.Cert.Raw) || !bytes.Equal(above[1], upper.Cert.Raw) {
		t.Fatalf("%d certificates, %v", len(above), err)
	}
	// The control plane accepts it.
	if _, err := verifyEKOf(t.Context(), ekVerifierOf(t, trusting(tpmcert.EKProfileTCG(), root)),
		&sentEK{Certificates: append([][]byte{leaf.Raw}, above...)}, nil, tpmlab.Time); err != nil {
		t.Error(err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)

	if _, err := readChainAbove(t, tpm, []byte("none")); !errors.Is(err, tpmcert.CheckCertificateEncoding) {
		t.Errorf("bad leaf: %v", err)
	}
	if _, err := readChainAbove(t, nil, leaf.Raw); err == nil {
		t.Error("no TPM was accepted")
	}
	tpmlab.WriteNV(t, tpm, 0x01c00108, []byte("no certificate"))
	if _, err := readChainAbove(t, tpm, leaf.Raw); !errors.Is(err, refusal.Check("ek-chain-encoding")) {
		t.Errorf("no certificate: %v", err)
	}
}

// A TPM that fails at any command yields a clear error and leaves nothing loaded.
func TestReadEKChainFaults(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	root := tpmlab.Sign(t, nil, "root", nil)
	lower := tpmlab.Sign(t, root, "lower", nil)
	leaf := tpmlab.EKCertificate(t, lower, tpmlab.NewP256(t).Public(), nil)
	tpmlab.WriteNV(t, tpm, 0x01c00100, lower.Cert.Raw)
	broken := errors.New("broken")
	for n := 1; ; n++ {
		faulty := tpmsim.Faulty(tpm, tpmsim.FailAt(n, broken))
		_, err := readChainAbove(t, faulty, leaf.Raw)
		if err == nil {
			if n < 4 {
				t.Errorf("%d commands", n-1)
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Errorf("command %d: %v", n, err)
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// EK certificates in a provisioned TPM hold under its CA.
func TestEKCertificateFromNV(t *testing.T) {
	tpm := tpmsim.New(t, tpmsim.Options{})
	var roots []*x509.Certificate
	roots = append(roots, tpm.CA().Root())
	v := ekVerifierOf(t, tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: roots, Intermediates: tpm.CA().Intermediates(), Profile: tpmcert.EKProfileTCG()}}})
	for _, index := range []tpm2.TPMHandle{0x01c00002, 0x01c0000a} {
		der, err := readCertificate(t, tpm, index)
		testkit.NoError(t, err)
		c, err := x509.ParseCertificate(der)
		testkit.NoError(t, err)
		if facts, err := verifyAt(v, c.NotBefore.AddDate(0, 0, 1), c); err != nil || facts.Tolerances != nil {
			t.Errorf("0x%08x: %+v, %v", uint32(index), facts, err)
		}
	}
}

func readCertificate(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle) ([]byte, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) {
		return tpmop.ReadNVCertificate(ctx, h, index)
	})
}

func TestReadNVCertificate(t *testing.T) {
	tpm := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}})
	want := tpm.AKCertificate(tpmsim.RSA2048).Raw
	got, err := readCertificate(t, tpm, GCERSA().CertificateIndex)
	testkit.NoError(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	tpmlab.WriteNV(t, tpm, testIndex, append(header(want, true), make([]byte, 64)...))
	if got, err = readCertificate(t, tpm, testIndex); err != nil || !bytes.Equal(got, want) {
		t.Errorf("with header and padding: error %v", err)
	}
	tpmlab.WriteNV(t, tpm, testIndex, append(bytes.Clone(want), 1))
	if _, err = readCertificate(t, tpm, testIndex); err == nil || !strings.Contains(err.Error(), "0x01800001") {
		t.Errorf("with another byte after it: got %v, want an error that names the index", err)
	}
}
