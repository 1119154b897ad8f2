package tpmsim_test

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// bare provisions nothing, which makes opening fast.
func bare() tpmsim.Options {
	return tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}}
}

func TestSecondOpen(t *testing.T) {
	needCGO(t)
	_, file, line, _ := runtime.Caller(0)
	first, err := tpmsim.Open(bare())
	testkit.NoError(t, err)
	defer first.Close()

	_, err = tpmsim.Open(bare())
	if !errors.Is(err, tpmsim.ErrInUse) {
		t.Fatalf("second Open: %v, want ErrInUse", err)
	}
	if want := fmt.Sprintf("%s:%d", file, line+1); !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not name the opener %s", err, want)
	}
	if err := getRandom(first); err != nil {
		t.Errorf("the first TPM after a second Open: %v", err)
	}
}

func TestOpenAgainAfterClose(t *testing.T) {
	needCGO(t)
	var keys []*ecdsa.PublicKey
	for _, seed := range []string{"a", "b", "a"} {
		tpm, err := tpmsim.Open(tpmsim.Options{Seed: []byte(seed), AKs: []tpmsim.AK{{Algorithm: tpmsim.P256}}, EKs: []tpmsim.Algorithm{}})
		testkit.NoError(t, err)
		keys = append(keys, tpm.AKPublic(tpmsim.P256).(*ecdsa.PublicKey))
		testkit.NoError(t, tpm.Close())
		if err := tpm.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if err := getRandom(tpm); !errors.Is(err, tpmsim.ErrClosed) {
			t.Errorf("command after Close: %v, want ErrClosed", err)
		}
		if err := tpm.Reset(); !errors.Is(err, tpmsim.ErrClosed) {
			t.Errorf("Reset after Close: %v, want ErrClosed", err)
		}
	}
	if keys[0].Equal(keys[1]) {
		t.Error("two seeds gave one machine")
	}
	if !keys[0].Equal(keys[2]) {
		t.Error("one seed gave two machines")
	}
}

func TestWithoutSeedEveryTPMDiffers(t *testing.T) {
	needCGO(t)
	var keys []*ecdsa.PublicKey
	for range 2 {
		tpm, err := tpmsim.Open(tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.P256}, AKs: []tpmsim.AK{}})
		testkit.NoError(t, err)
		keys = append(keys, tpm.EKPublic(tpmsim.P256).(*ecdsa.PublicKey))
		tpm.Close()
	}
	if keys[0].Equal(keys[1]) {
		t.Error("two TPMs without a seed have the same EK")
	}
}

func TestSeedMakesTheSameCertificates(t *testing.T) {
	needCGO(t)
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	var certs [2][]string
	for i := range certs {
		tpm, err := tpmsim.Open(tpmsim.Options{Seed: []byte("repeat"), Now: func() time.Time { return now }})
		testkit.NoError(t, err)
		certs[i] = []string{
			string(tpm.CA().Root().Raw),
			string(tpm.EKCertificate(tpmsim.RSA2048).Raw),
			string(tpm.EKCertificate(tpmsim.P256).Raw),
			string(tpm.AKCertificate(tpmsim.RSA2048).Raw),
		}
		tpm.Close()
	}
	for i := range certs[0] {
		if certs[0][i] != certs[1][i] {
			t.Errorf("certificate %d differs between two TPMs of one seed and one time", i)
		}
	}
}

func TestManyOpenersOneWins(t *testing.T) {
	needCGO(t)
	const n = 16
	var wg sync.WaitGroup
	won := make(chan *tpmsim.TPM, n)
	for range n {
		wg.Go(func() {
			tpm, err := tpmsim.Open(bare())
			if err == nil {
				won <- tpm
			} else if !errors.Is(err, tpmsim.ErrInUse) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Errorf("%d of %d openers won, want 1", len(won), n)
	}
	for tpm := range won {
		tpm.Close()
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	onBoth(t, bare(), func(*testing.T, *tpmsim.TPM) {}) // warm up what starts once
	before := runtime.NumGoroutine()
	onBoth(t, tpmsim.Options{}, func(t *testing.T, tpm *tpmsim.TPM) {
		if err := getRandom(tpm); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}

func TestConcurrentCommands(t *testing.T) {
	onBoth(t, bare(), func(t *testing.T, tpm *tpmsim.TPM) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if err := getRandom(tpm); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestShortCommandIsRefused(t *testing.T) {
	onBoth(t, bare(), func(t *testing.T, tpm *tpmsim.TPM) {
		for _, n := range []int{0, 1, 9} {
			if rsp, err := tpm.Send(make([]byte, n)); err == nil {
				t.Errorf("command of %d bytes: response %x, want an error", n, rsp)
			}
		}
		rsp, err := tpm.Send(make([]byte, 10))
		if err != nil || len(rsp) != 10 {
			t.Errorf("command of 10 zeros: %x, %v; want the TPM's own error", rsp, err)
		}
		if err := getRandom(tpm); err != nil {
			t.Errorf("after bad commands: %v", err)
		}
	})
}

func TestReset(t *testing.T) {
	onBoth(t, tpmsim.Options{}, func(t *testing.T, tpm *tpmsim.TPM) {
		before := resetCount(t, tpm)
		cert := readNV(t, tpm, tpmsim.EKCertificateIndexP256)
		if _, err := (tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}).Execute(tpm); err != nil {
			t.Fatal(err)
		}
		testkit.NoError(t, tpm.Reset())
		if got := resetCount(t, tpm); got != before+1 {
			t.Errorf("resetCount %d, want %d", got, before+1)
		}
		if h, err := tpmsim.LoadedHandles(tpm); err != nil || len(h) != 0 {
			t.Errorf("after a reset handles %v, %v are left", h, err)
		}
		if string(readNV(t, tpm, tpmsim.EKCertificateIndexP256)) != string(cert) {
			t.Error("NV changed")
		}
		public := createPrimary(t, tpm, readNV(t, tpm, tpmsim.AKTemplateIndexRSA))
		sameKey(t, public, tpm.AKCertificate(tpmsim.RSA2048).PublicKey)
	})
}

func resetCount(t *testing.T, tpm *tpmsim.TPM) uint32 {
	t.Helper()
	rsp, err := tpm2.ReadClock{}.Execute(tpm)
	testkit.NoError(t, err)
	return rsp.CurrentTime.ClockInfo.ResetCount
}

func TestOptionsRefused(t *testing.T) {
	tests := map[string]tpmsim.Options{
		"EK without a place": {EKs: []tpmsim.Algorithm{77}},
		"EK twice":           {EKs: []tpmsim.Algorithm{tpmsim.P256, tpmsim.P256}},
		"unknown AK":         {AKs: []tpmsim.AK{{Algorithm: 99}}},
		"AK index twice":     {AKs: []tpmsim.AK{{}, {}}},
		"AK in EK's index":   {AKs: []tpmsim.AK{{TemplateIndex: tpmsim.EKCertificateIndexP256}}},
		"nonce at template":  {AKs: []tpmsim.AK{{NonceIndex: tpmsim.AKTemplateIndexRSA}}},
	}
	for name, opts := range tests {
		t.Run(name, func(t *testing.T) {
			needCGO(t)
			if _, err := tpmsim.Open(opts); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("Open: %v, want ErrOptions", err)
			}
			if tpm, err := tpmsim.Open(bare()); err != nil {
				t.Errorf("after a refused Open: %v", err)
			} else {
				tpm.Close()
			}
		})
	}
}

func TestNewFailsTheTest(t *testing.T) {
	simulator(t, bare())
	rec := &recorder{TB: t}
	rec.run(func() { tpmsim.New(rec, bare()) })
	if !rec.fatal || !strings.Contains(rec.text, "in use") {
		t.Errorf("New next to another: fatal %v, %q", rec.fatal, rec.text)
	}
}

// recorder is a testing.TB that notes how a test function ended.
type recorder struct {
	testing.TB
	fatal, skipped bool
	text           string
}

func (r *recorder) Fatal(args ...any) { r.fatal, r.text = true, fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Skip(args ...any)  { r.skipped, r.text = true, fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Helper()           {}

func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}
