package tpmsim_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// fakeTPM answers every command with success and counts them. It is not safe for
// concurrent use, which the race detector would say.
type fakeTPM struct{ sent int }

func (f *fakeTPM) Send([]byte) ([]byte, error) {
	f.sent++
	return []byte{0x80, 0x01, 0, 0, 0, 10, 0, 0, 0, 0}, nil
}

// command is a command without parameters.
func command(cc tpm2.TPMCC) []byte {
	return []byte{0x80, 0x01, 0, 0, 0, 10, byte(cc >> 24), byte(cc >> 16), byte(cc >> 8), byte(cc)}
}

func TestFaults(t *testing.T) {
	own := errors.New("own error")
	success := []byte{0x80, 0x01, 0, 0, 0, 10, 0, 0, 0, 0}
	type outcome struct {
		rsp []byte
		err error
	}
	ok := outcome{rsp: success}
	tests := map[string]struct {
		faults tpmsim.Faults
		want   [4]outcome
		sent   int // commands that reached the TPM
	}{
		"none":           {nil, [4]outcome{ok, ok, ok, ok}, 4},
		"fail":           {tpmsim.FailAt(2, nil), [4]outcome{ok, {err: tpmsim.ErrInjected}, ok, ok}, 3},
		"fail, own":      {tpmsim.FailAt(3, own), [4]outcome{ok, ok, {err: own}, ok}, 3},
		"fail, too late": {tpmsim.FailAt(5, nil), [4]outcome{ok, ok, ok, ok}, 4},
		"lose":           {tpmsim.LoseAt(2), [4]outcome{ok, {err: tpmsim.ErrInjected}, ok, ok}, 4},
		"answer":         {tpmsim.AnswerAt(1, tpm2.TPMRCRetry), [4]outcome{{rsp: []byte{0x80, 0x01, 0, 0, 0, 10, 0, 0, 0x09, 0x22}}, ok, ok, ok}, 3},
		"drop":           {tpmsim.DropAt(3), [4]outcome{ok, ok, {err: tpmsim.ErrDropped}, {err: tpmsim.ErrDropped}}, 2},
		"drop, late": {tpmsim.At(3, tpmsim.Fault{Err: tpmsim.ErrDropped, Late: true}),
			[4]outcome{ok, ok, {err: tpmsim.ErrDropped}, {err: tpmsim.ErrDropped}}, 3},
		"by code": {tpmsim.FailEvery(tpm2.TPMCCGetRandom, tpm2.TPMRCFailure), [4]outcome{ok, {rsp: []byte{0x80, 0x01, 0, 0, 0, 10, 0, 0, 0x01, 0x01}}, ok, ok}, 3},
		"by number and code": {func(n int, cc tpm2.TPMCC) tpmsim.Fault {
			if n == 2 && cc == tpm2.TPMCCGetRandom {
				return tpmsim.Fault{}
			}
			return tpmsim.Fault{Err: own}
		}, [4]outcome{{err: own}, ok, {err: own}, {err: own}}, 1},
	}
	codes := []tpm2.TPMCC{tpm2.TPMCCCreatePrimary, tpm2.TPMCCGetRandom, tpm2.TPMCCCertify, tpm2.TPMCCFlushContext}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := &fakeTPM{}
			tpm := tpmsim.Faulty(fake, tt.faults)
			for i, cc := range codes {
				rsp, err := tpm.Send(command(cc))
				if !errors.Is(err, tt.want[i].err) || !slices.Equal(rsp, tt.want[i].rsp) {
					t.Errorf("command %d: %x, %v; want %x, %v", i+1, rsp, err, tt.want[i].rsp, tt.want[i].err)
				}
			}
			if fake.sent != tt.sent {
				t.Errorf("%d commands reached the TPM, want %d", fake.sent, tt.sent)
			}
			if tpm.Count() != 4 || !slices.Equal(tpm.Commands(), codes) {
				t.Errorf("recorded %d: %v", tpm.Count(), tpm.Commands())
			}
			if want := errors.Is(tt.want[3].err, tpmsim.ErrDropped); tpm.Dropped() != want {
				t.Errorf("Dropped %v, want %v", tpm.Dropped(), want)
			}
			tpm.SetFaults(nil)
			if tpm.Count() != 0 || tpm.Dropped() {
				t.Error("SetFaults does not start anew")
			}
			if rsp, err := tpm.Send(command(tpm2.TPMCCGetRandom)); err != nil || !slices.Equal(rsp, success) {
				t.Errorf("after SetFaults(nil): %x, %v", rsp, err)
			}
		})
	}
}

func TestFaultBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fake := &fakeTPM{}
	tpm := tpmsim.Faulty(fake, tpmsim.At(1, tpmsim.Fault{Before: cancel}))
	if _, err := tpm.Send(command(tpm2.TPMCCGetRandom)); err != nil {
		t.Error(err)
	}
	if ctx.Err() == nil {
		t.Error("Before was not called")
	}
	if fake.sent != 1 {
		t.Error("the command did not reach the TPM")
	}
}

func TestFaultyConcurrently(t *testing.T) {
	fake := &fakeTPM{}
	tpm := tpmsim.Faulty(fake, tpmsim.FailAt(50, nil))
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	for range 10 {
		wg.Go(func() {
			for range 10 {
				if _, err := tpm.Send(command(tpm2.TPMCCGetRandom)); err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
				tpm.Commands()
			}
		})
	}
	wg.Wait()
	if failed != 1 || tpm.Count() != 100 || fake.sent != 99 {
		t.Errorf("%d failed, %d counted, %d sent; want 1, 100, 99", failed, tpm.Count(), fake.sent)
	}
}

// The TPM executes a command whose response is lost.
func TestLostResponseLeavesAnObject(t *testing.T) {
	onBoth(t, bare(), func(t *testing.T, tpm *tpmsim.TPM) {
		create := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}
		if _, err := create.Execute(tpmsim.Faulty(tpm, tpmsim.FailAt(1, nil))); !errors.Is(err, tpmsim.ErrInjected) {
			t.Errorf("failed command: %v, want ErrInjected", err)
		}
		if h, err := tpmsim.LoadedHandles(tpm); err != nil || len(h) != 0 {
			t.Errorf("after a command that never ran: %v, %v", h, err)
		}
		if _, err := create.Execute(tpmsim.Faulty(tpm, tpmsim.LoseAt(1))); !errors.Is(err, tpmsim.ErrInjected) {
			t.Errorf("lost response: %v, want ErrInjected", err)
		}
		h, err := tpmsim.LoadedHandles(tpm)
		if err != nil || len(h) != 1 {
			t.Fatalf("after a lost response: %v, %v; want one object", h, err)
		}
		if _, err := create.Execute(tpmsim.Faulty(tpm, tpmsim.AnswerAt(1, tpm2.TPMRCObjectMemory))); !errors.Is(err, tpm2.TPMRCObjectMemory) {
			t.Errorf("answered: %v, want TPM_RC_OBJECT_MEMORY", err)
		}
		if _, err := (tpm2.FlushContext{FlushHandle: h[0]}).Execute(tpm); err != nil {
			t.Error(err)
		}
	})
}
