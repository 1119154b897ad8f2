package keys

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// tpmKey is a key that no TPM of these tests can load.
const tpmKey = `-----BEGIN TSS2 PRIVATE KEY-----
MIHwBgZngQUKAQOgAwEBAQIEQAAAAQRYAFYAIwALAAYAcgAAABAAEAADABAAID8i
v02k3nfpw4PoYR5M07D/26ApyNLDFIdfe1cfw7uJACChae3HCSa1idyyapZlUFan
FvGhknO4uwQbcqwqpbKrbQSBgAB+ACAQYAdtbnsPQHZvlqj9rKbCq4DgH4K7yS8s
JyCQ+8ZPvAAQqcad9AOw1VxaErKfpeMMFk4TZJpOqFhG64I8hzbG8rbzc3DE8BMV
dvSBaHfEAQF6NT5l6t/FcTOkhTxjYvNpIzuXu49IPSHUi2uv74wL6b2xDN/vWO/L
POx+
-----END TSS2 PRIVATE KEY-----
`

// answering is a TPM that answers every command with a response code.
type answering struct{ code *tpm2.TPMRC }

func (a answering) Send([]byte) ([]byte, error) {
	return binary.BigEndian.AppendUint32([]byte{0x80, 0x01, 0, 0, 0, 10}, uint32(*a.code)), nil
}

func (answering) Close() error { return nil }

// TestTPM: a TPM that is locked or busy does not keep the public key from being published, and signs later; one that
// refuses the key ends the start.
func TestTPM(t *testing.T) {
	b := newBench(t)
	b.write("tpm.pem", tpmKey)
	code := tpm2.TPMRCLockout
	b.config.KeyFile, b.config.TPM = "", &TPM{Device: "/dev/tpmrm0", KeyFile: b.path("tpm.pem"), open: func() (transport.TPMCloser, error) { return answering{&code}, nil }}
	b.start()
	if keys := testkit.Must(b.keys.Keys(t.Context(), "")); len(keys) != 1 {
		t.Errorf("got %d keys", len(keys))
	}
	_, err := b.keys.Sign(t.Context(), []byte("{}"))
	if s := b.keys.Status(); !errors.Is(err, refusal.ErrRetry) || s.Ready || s.Failures != 1 {
		t.Errorf("got %v, %+v", err, s)
	}
	b.wantLog("wrong passwords")
	b.pass(0) // and it is tried again
	if got := b.keys.Status().Failures; got != 2 {
		t.Errorf("%d failures", got)
	}
	testkit.NoError(t, b.keys.Close())

	code = tpm2.TPMRCInitialize
	b.start() // the key was this TPM's: its tokens are accepted
	if s := b.keys.Status(); s.Ready || s.Failures != 1 || len(s.Published) != 1 {
		t.Errorf("got %+v", s)
	}
	testkit.MustDo(os.Remove(b.path("state.json")))
	if _, err := Open(b.config); err == nil || errors.Is(err, refusal.ErrRetry) || !errors.Is(err, tpm2.TPMRCInitialize) {
		t.Errorf("got %v", err)
	}
	b.config.TPM.PasswordFile = b.path("password")
	b.refuses("no such file")
	b.write("password", "secret\n")
	testkit.MustDo(os.Chmod(b.path("password"), 0o644))
	b.refuses("other users cannot read")
	testkit.MustDo(os.Chmod(b.path("password"), 0o600))
	b.config.TPM.open = nil
	b.config.TPM.Device = b.path("password")
	b.refuses("the device file or the Unix socket of a TPM")

	text := testkit.Must(PublicKey(b.config)) // opens no TPM
	if keys, err := parsePublic(text, 1); err != nil || len(keys) != 1 {
		t.Errorf("got %v", err)
	}
	for name, text := range map[string]string{
		"three keys": tpmKey + tpmKey + tpmKey, "another block": privatePEM(1), "cut": tpmKey[:200], "empty": "",
	} {
		if _, err := parseTPMFile([]byte(text)); err == nil {
			t.Errorf("%s is a key file", name)
		}
	}
	if keys, err := parseTPMFile([]byte(tpmKey + tpmKey)); err != nil || len(keys) != 2 {
		t.Errorf("two keys: got %v", err)
	}
}

// TestTPMAtRestart: a new key that the TPM does not load is not published, at a start and later.
func TestTPMAtRestart(t *testing.T) {
	b := newBench(t)
	b.start()
	b.write("tpm.pem", tpmKey)
	code := tpm2.TPMRCLockout
	b.config.KeyFile, b.config.TPM = "", &TPM{Device: "/dev/tpmrm0", KeyFile: b.path("tpm.pem"), open: func() (transport.TPMCloser, error) { return answering{&code}, nil }}
	b.degraded("wrong passwords", 1)
	b.pass(publish)
	b.wantKeys(1)
	code = tpm2.TPMRCInitialize
	b.degraded("TPM_RC_INITIALIZE", 1)
}

// hanging is a TPM that answers no command before the test has ended.
type hanging struct{ end <-chan struct{} }

func (h hanging) Send([]byte) ([]byte, error) { <-h.end; return nil, os.ErrClosed }

func (hanging) Close() error { return nil }

// TestHangingTPM: a TPM that does not answer keeps no public key from being published, at the first start and at
// another one, and no file from being read again.
func TestHangingTPM(t *testing.T) {
	b := newBench(t)
	b.write("tpm.pem", tpmKey)
	b.config.KeyFile, b.config.TPM = "", &TPM{
		Device: "/dev/tpmrm0", KeyFile: b.path("tpm.pem"), limit: 100 * time.Millisecond,
		open: func() (transport.TPMCloser, error) { return hanging{t.Context().Done()}, nil },
	}
	for range 2 {
		began := time.Now()
		b.start()
		b.write("peers/p.pem", publicPEM(2))
		b.pass(0)
		if keys := testkit.Must(b.keys.Keys(t.Context(), "")); len(keys) != 2 || b.keys.Status().Ready {
			t.Errorf("got %d keys, %+v", len(keys), b.keys.Status())
		}
		if _, err := b.keys.Sign(t.Context(), []byte("{}")); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		b.wantLog("no answer within 100ms")
	}
}

// TestSignerOfGo signs with the key of a Go function.
func TestSignerOfGo(t *testing.T) {
	b := newBench(t)
	b.config.KeyFile, b.config.Signer = "", private(2)
	b.start()
	b.wantSigns(2)
	b.pass(publish)
	b.wantSigns(2)
}
