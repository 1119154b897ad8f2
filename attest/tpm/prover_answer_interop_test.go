package tpm

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// sized is a TPM2B.
func sized(b []byte) []byte {
	var out cryptobyte.Builder
	tpmwire.AddTPM2B(&out, b)
	return out.BytesOrPanic()
}

// Our credentials open with tpm2_activatecredential, and tpm2_makecredential's with ours, for every
// EK of swtpm.
func TestTPM2ToolsCredentials(t *testing.T) {
	x := tpmlab.StartTools(t)
	tpm := x.TPM
	tpmlab.Persist(t, tpm, tpm2.TPMRHEndorsement, AKTemplateECDSAP256(), 0x81000010)
	for name, ek := range map[string]struct {
		origin EKOrigin
		policy bool
	}{
		"L-1": {EKRSA2048(), true}, "L-2": {EKP256(), true}, "H-1": {EKHigh(1), false},
		"H-2": {EKHigh(2), false}, "H-3": {EKHigh(3), false}, "H-6": {EKHigh(6), false},
	} {
		t.Run(name, func(t *testing.T) {
			x.T = t
			tpmlab.Persist(t, tpm, tpm2.TPMRHEndorsement, ek.origin.Template, 0x81000020)
			defer x.Run("tpm2_evictcontrol -Q -C o -c 0x81000020")
			oursWithTools(t, x, tpm, ek.policy)
			toolsWithOurs(t, x, tpm)
		})
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

const toolsSecret = "a secret of tools, 32 bytes long"

func persistent(t *testing.T, tpm transport.TPM, f func(ctx context.Context, h *tpmop.Handles, ak, ek *tpmop.LoadedKey) ([]byte, error)) []byte {
	t.Helper()
	got, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) {
		ak, err := loadAK(ctx, h, &AKSource{Handle: 0x81000010}, nil, nil)
		if err != nil {
			return nil, err
		}
		ek, err := loadEK(ctx, h, &EKOrigin{Handle: 0x81000020}, nil)
		if err != nil {
			return nil, err
		}
		return f(ctx, h, ak, ek)
	})
	testkit.NoError(t, err)
	return got
}

func oursWithTools(t *testing.T, x *tpmlab.Tools, tpm transport.TPM, policy bool) {
	t.Helper()
	file := persistent(t, tpm, func(_ context.Context, _ *tpmop.Handles, ak, ek *tpmop.LoadedKey) ([]byte, error) {
		key, err := ek.Public.Key()
		if err != nil {
			return nil, err
		}
		c, err := makeCredential(rand.Reader, key, ak.Name, []byte(toolsSecret))
		if err != nil {
			return nil, err
		}
		return toolsFile(t, c), nil
	})
	write(t, x, "ours.blob", file)
	open := "tpm2_activatecredential -Q -c 0x81000010 -C 0x81000020 -i ours.blob -o ours.secret"
	if policy {
		x.Run("tpm2_startauthsession --policy-session -S s.ctx")
		x.Run("tpm2_policysecret -Q -S s.ctx -c e")
		open += " -P session:s.ctx"
	}
	x.Run(open)
	if policy {
		x.Run("tpm2_flushcontext s.ctx")
	}
	if got, err := os.ReadFile(filepath.Join(x.Dir, "ours.secret")); err != nil || string(got) != toolsSecret {
		t.Errorf("ours with tpm2_activatecredential: %q, %v", got, err)
	}
	_ = os.Remove(filepath.Join(x.Dir, "ours.secret"))
}

func toolsWithOurs(t *testing.T, x *tpmlab.Tools, tpm transport.TPM) {
	t.Helper()
	write(t, x, "secret", []byte(toolsSecret))
	got := persistent(t, tpm, func(ctx context.Context, h *tpmop.Handles, ak, ek *tpmop.LoadedKey) ([]byte, error) {
		// With a TPM2B_PUBLIC the tool takes hash and cipher from the EK itself.
		write(t, x, "ek.pub", sized(ek.Public.Raw))
		x.Run("tpm2_makecredential -Q -T none -u ek.pub -s secret -n " + hex.EncodeToString(ak.Name) + " -o theirs.blob")
		theirs, err := os.ReadFile(filepath.Join(x.Dir, "theirs.blob"))
		if err != nil {
			return nil, err
		}
		return activate(ctx, h, ak, ek, nil, toolsCredential(t, theirs))
	})
	if string(got) != toolsSecret {
		t.Errorf("tpm2_makecredential's with ours: %q", got)
	}
}

func write(t *testing.T, x *tpmlab.Tools, name string, content []byte) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(filepath.Join(x.Dir, name), content, 0o600))
}

// tpm2_makecredential also takes an EK that is a PEM file: then it guesses.
func TestTPM2ToolsCredentialFromPEM(t *testing.T) {
	if _, err := exec.LookPath("tpm2_makecredential"); err != nil {
		t.Skip("tpm2_makecredential is not installed: apt-get install -y tpm2-tools")
	}
	tpm := tpmsim.Swtpm(t, tpmsim.Options{AKs: []tpmsim.AK{}})
	x := &tpmlab.Tools{T: t, Dir: t.TempDir(), Env: append(os.Environ(), "TSS2_LOG=all+NONE")}
	write(t, x, "secret", []byte(toolsSecret))
	for kind, origin := range map[string]EKOrigin{"rsa": EKRSA2048(), "ecc": EKP256()} {
		algorithm := tpmsim.RSA2048
		if kind == "ecc" {
			algorithm = tpmsim.P256
		}
		der, err := x509.MarshalPKIXPublicKey(tpm.EKPublic(algorithm))
		testkit.NoError(t, err)
		write(t, x, "ek.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		got, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) {
			ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil, nil)
			if err != nil {
				return nil, err
			}
			ek, err := loadEK(ctx, h, &origin, nil)
			if err != nil {
				return nil, err
			}
			if out, err := x.Try("tpm2_makecredential -Q -T none -u ek.pem -G " + kind + " -s secret -n " + hex.EncodeToString(ak.Name) + " -o theirs.blob"); err != nil {
				t.Fatalf("%v\n%s", err, strings.TrimSpace(out))
			}
			theirs, err := os.ReadFile(filepath.Join(x.Dir, "theirs.blob"))
			if err != nil {
				return nil, err
			}
			return activate(ctx, h, ak, ek, nil, toolsCredential(t, theirs))
		})
		if err != nil || string(got) != toolsSecret {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
}
