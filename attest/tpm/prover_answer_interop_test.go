package tpm

import (
	"bytes"
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

	tcg "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// channel is a TPM as go-attestation wants it.
type channel struct {
	tpm transport.TPM
	rsp bytes.Buffer
}

func (c *channel) Write(command []byte) (int, error) {
	rsp, err := c.tpm.Send(command)
	c.rsp.Write(rsp)
	return len(command), err
}

func (c *channel) Read(b []byte) (int, error)      { return c.rsp.Read(b) }
func (c *channel) Close() error                    { return nil }
func (c *channel) MeasurementLog() ([]byte, error) { return nil, nil }

// client opens go-attestation on a TPM, with a new AK. The handle is that of the AK.
func client(t *testing.T, tpm transport.TPM) (*tcg.TPM, *tcg.AK, tpm2.TPMHandle) {
	t.Helper()
	c, err := tcg.OpenTPM(&tcg.OpenConfig{CommandChannel: &channel{tpm: tpm}})
	if err != nil {
		t.Fatal(err)
	}
	ak, err := c.NewAK(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ak.Close(c); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	loaded := tpmlab.LoadedHandles(t, tpm)
	if len(loaded) != 1 {
		t.Fatalf("loaded: %x", loaded)
	}
	return c, ak, loaded[0]
}

// Our credentials open with go-attestation's client, and go-attestation's with ours.
func TestGoAttestation(t *testing.T) {
	tpms := map[string]func(testing.TB) transport.TPM{
		"simulator": func(t testing.TB) transport.TPM {
			return tpmsim.New(t, tpmsim.Options{AKs: []tpmsim.AK{}, PersistEKs: true})
		},
		"swtpm": func(t testing.TB) transport.TPM {
			return tpmsim.Swtpm(t, tpmsim.Options{AKs: []tpmsim.AK{}, PersistEKs: true})
		},
	}
	for name, open := range tpms {
		t.Run(name, func(t *testing.T) { testGoAttestation(t, open(t)) })
	}
}

func testGoAttestation(t *testing.T, tpm transport.TPM) {
	c, ak, handle := client(t, tpm)
	eks, err := c.EKCertificates()
	if err != nil {
		t.Fatal(err)
	}
	if len(eks) != 2 {
		t.Fatalf("%d EKs", len(eks))
	}
	origins := []EKOrigin{EKRSA2048(), EKP256()}
	public, err := statement.ParsePublic(ak.AttestationParameters().Public)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte("opens in go-attestation, 32 byte")
	for n, ek := range eks {
		ours, err := makeCredential(rand.Reader, ek.Public, public.Name(), secret)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ak.ActivateCredentialWithEK(c, tcg.EncryptedCredential{Credential: sized(ours.IDObject), Secret: sized(ours.EncryptedSecret)}, ek)
		if err != nil || !bytes.Equal(got, secret) {
			t.Errorf("EK %d, ours with theirs: %q, %v", n, got, err)
		}

		want, theirs, err := (&tcg.ActivationParameters{EK: ek.Public, AK: ak.AttestationParameters()}).Generate()
		if err != nil {
			t.Fatal(err)
		}
		opened, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) {
			loadedAK, err := tpmop.ReadPublic(ctx, h, handle)
			if err != nil {
				return nil, err
			}
			loadedEK, err := loadEK(ctx, h, &origins[n], nil)
			if err != nil {
				return nil, err
			}
			return activate(ctx, h, loadedAK, loadedEK, nil, &attest.Credential{IDObject: theirs.Credential[2:], EncryptedSecret: theirs.Secret[2:]})
		})
		if err != nil || !bytes.Equal(opened, want) {
			t.Errorf("EK %d, theirs with ours: %q, %v", n, opened, err)
		}
	}
}

// sized is a TPM2B.
func sized(b []byte) []byte {
	var out cryptobyte.Builder
	tpmwire.AddTPM2B(&out, b)
	return out.BytesOrPanic()
}

// Our credentials open with tpm2_activatecredential, and those of tpm2_makecredential
// with ours, for every EK of swtpm.
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
		ak, err := loadAK(ctx, h, &AKSource{Handle: 0x81000010}, nil)
		if err != nil {
			return nil, err
		}
		ek, err := loadEK(ctx, h, &EKOrigin{Handle: 0x81000020}, nil)
		if err != nil {
			return nil, err
		}
		return f(ctx, h, ak, ek)
	})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(filepath.Join(x.Dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		write(t, x, "ek.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		got, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) {
			ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil)
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
