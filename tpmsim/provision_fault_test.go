package tpmsim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// breaking is a device that fails at its n-th command.
type breaking struct {
	device *device
	n      int
	err    error
	closed int
}

func (b *breaking) Send(cmd []byte) ([]byte, error) {
	if b.n--; b.n == 0 {
		return nil, b.err
	}
	return b.device.tpm.Send(cmd)
}

func (b *breaking) reset() error { return b.err }

func (b *breaking) close() error {
	b.closed++
	return errors.Join(b.device.close(), b.err)
}

// Whichever command fails while a TPM is provisioned: the caller gets that error, and
// the emulator is closed.
func TestProvisioningFailsAtAnyCommand(t *testing.T) {
	o := Options{PersistEKs: true, AKs: []AK{{NonceIndex: 0x01c10020}}, Seed: []byte("a")}
	for n := 1; ; n++ {
		if err := acquire("here"); err != nil {
			t.Fatalf("before command %d: %v", n, err)
		}
		dev, err := openSimulator(o.Seed)
		if err != nil {
			release()
			if errors.Is(err, ErrNoCGO) {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		b := &breaking{device: dev, n: n, err: fmt.Errorf("command %d fails", n)}
		tpm, err := provision(&device{b, b.reset, b.close}, "", o)
		if err == nil {
			if n < 20 {
				t.Errorf("provisioning takes %d commands only", n-1)
			}
			if err := tpm.Reset(); !errors.Is(err, b.err) {
				t.Errorf("Reset: %v, want the device's error", err)
			}
			if err := tpm.Close(); !errors.Is(err, b.err) {
				t.Errorf("Close: %v, want the device's error", err)
			}
			return
		}
		if !errors.Is(err, b.err) || b.closed != 1 {
			t.Errorf("command %d: closed %d times, error %v", n, b.closed, err)
		}
	}
}

func TestNoSwtpmAfterAFailedReset(t *testing.T) {
	tpm, s, err := openSwtpm(Options{EKs: []Algorithm{}, AKs: []AK{}})
	if errors.Is(err, ErrNoSwtpm) {
		t.Skip(err)
	}
	testkit.NoError(t, err)
	s.path = "/nonexistent/swtpm"
	if err := tpm.Reset(); err == nil {
		t.Error("Reset without the program succeeded")
	}
	if err := tpm.Close(); err != nil {
		t.Errorf("Close after a failed Reset: %v", err)
	}
}

func TestNames(t *testing.T) {
	for a, want := range map[Algorithm]string{P256: "P256", RSA3072: "RSA3072", 77: "Algorithm(77)"} {
		if got := a.String(); got != want {
			t.Errorf("algorithm %d is called %s, want %s", int(a), got, want)
		}
	}
	for s, want := range map[Style]string{StyleTCG: "StyleTCG", StyleGoogle: "StyleGoogle", StyleGoogleOld: "StyleGoogleOld",
		StyleAzure: "StyleAzure", -1: "Style(-1)"} {
		if got := s.String(); got != want {
			t.Errorf("style %d is called %s, want %s", int(s), got, want)
		}
	}
	if got := ErrClosed.Error(); got != "tpmsim: the TPM is closed" {
		t.Errorf("ErrClosed is %q", got)
	}
}
