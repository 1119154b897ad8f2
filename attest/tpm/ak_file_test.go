package tpm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// akFile makes an attestation key under a storage key, as other software does, and leaves
// nothing of it in the TPM.
func akFile(t testing.TB, device transport.TPM, parent tpm2.TPMHandle, area *tpm2.TPMTPublic) *tpmkey.File {
	t.Helper()
	f, err := do(t, device, func(ctx context.Context, h *tpmop.Handles) (*tpmkey.File, error) {
		under, err := tpmop.StorageParent(ctx, h, parent, nil)
		if err != nil {
			return nil, err
		}
		made, err := tpm2.Create{ParentHandle: tpmop.WithPassword(under.Handle, under.Name, nil), InPublic: tpm2.New2B(*area)}.Execute(h.TPM)
		if err != nil {
			return nil, err
		}
		return &tpmkey.File{Parent: parent, Public: made.OutPublic.Bytes(), Private: made.OutPrivate.Buffer}, nil
	})
	testkit.NoError(t, err)
	return f
}

// An attestation key that is kept as its TPM encrypted it is the same key at each use, under a
// persistent parent and under the owner hierarchy's, and takes no room afterwards.
func TestAKFromFile(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	const persistent = 0x81000001
	tpmlab.Persist(t, device, tpm2.TPMRHOwner, tpmop.StorageRootKey(), persistent)
	for _, parent := range []tpm2.TPMHandle{persistent, tpm2.TPMRHOwner} {
		for name, area := range map[string]*tpm2.TPMTPublic{"RSA": AKTemplateRSA2048SHA256(), "P-256": AKTemplateECDSAP256()} {
			f := akFile(t, device, parent, area)
			for range 2 {
				ak, err := AKPublic(t.Context(), device, AKSource{File: f}, secret.Value[[]byte]{})
				if err != nil || !bytes.Equal(ak.Raw, f.Public) {
					t.Errorf("%s under 0x%08x: %v", name, uint32(parent), err)
				}
				tpmlab.CheckNothingLoaded(t, device)
			}
			private := bytes.Clone(f.Private)
			private[len(private)-1] ^= 1
			if _, err := AKPublic(t.Context(), device, AKSource{File: &tpmkey.File{Parent: parent, Public: f.Public, Private: private}},
				secret.Value[[]byte]{}); !errors.Is(err, tpm2.TPMRCIntegrity) {
				t.Errorf("%s under 0x%08x, another private part: %v", name, uint32(parent), err)
			}
		}
	}
}

// A file that no TPM could use, or whose key no verifier accepts, is refused before any command.
func TestAKFromFileRefused(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	good := akFile(t, device, tpm2.TPMRHOwner, AKTemplateECDSAP256())
	unrestricted := AKTemplateECDSAP256()
	unrestricted.ObjectAttributes.Restricted = false
	long := make([]byte, tpmop.MaxPrivateSize+1)
	_, _ = rand.Read(long)
	for name, c := range map[string]struct {
		change func(*tpmkey.File)
		want   string
	}{
		"nothing":         {func(f *tpmkey.File) { *f = tpmkey.File{} }, "public-size"},
		"no public area":  {func(f *tpmkey.File) { f.Public = nil }, "public-size"},
		"one byte more":   {func(f *tpmkey.File) { f.Public = append(bytes.Clone(f.Public), 0) }, "public-encoding"},
		"not restricted":  {func(f *tpmkey.File) { f.Public = tpm2.Marshal(unrestricted) }, "ak-attributes"},
		"no private part": {func(f *tpmkey.File) { f.Private = nil }, "private part of 0 bytes"},
		"a longer one":    {func(f *tpmkey.File) { f.Private = long }, "private part of 4097 bytes"},
		"a policy":        {func(f *tpmkey.File) { f.Policy = []tpmkey.PolicyCommand{{}} }, "a policy"},
		"a loaded parent": {func(f *tpmkey.File) { f.Parent = 0x80000000 }, "parent: got 0x80000000"},
		"no parent":       {func(f *tpmkey.File) { f.Parent = 0 }, "parent: got 0x00000000"},
	} {
		f := *good
		c.change(&f)
		_, err := NewProver(device, AKSource{File: &f, CertificateIndex: 0x01c10000}, ProverOptions{})
		if !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewProver(device, AKSource{File: good, CertificateIndex: 0x01c10000}, ProverOptions{}); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	if _, err := NewProver(device, AKSource{File: good, Handle: 0x81000001}, ProverOptions{}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("with Handle: %v", err)
	}
}
