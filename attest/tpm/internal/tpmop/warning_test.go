package tpmop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// answering is a TPM that gives these answers, and the last of them again and again.
type answering struct {
	answers []tpm2.TPMRC
	sent    [][]byte
	before  func() // of each answer
}

func (a *answering) Send(command []byte) ([]byte, error) {
	if a.before != nil {
		a.before()
	}
	a.sent = append(a.sent, bytes.Clone(command))
	rc := a.answers[min(len(a.sent), len(a.answers))-1]
	return binary.BigEndian.AppendUint32([]byte{0x80, 0x01, 0, 0, 0, 10}, uint32(rc)), nil
}

// flushOne runs a command that has no answer but a code.
func flushOne(ctx context.Context, a *answering) error {
	return Share(a).Do(ctx, func(h *Handles) error {
		_, err := Run(ctx, h.TPM, tpm2.FlushContext{FlushHandle: tpm2.TPMHandle(0x80000000)}, "TPM2_FlushContext")
		return err
	})
}

// The codes of Part 2, 6.6.3, with a few errors of the same kind.
var (
	passing = []tpm2.TPMRC{tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting, tpm2.TPMRCCanceled, tpm2.TPMRCNVRate, tpm2.TPMRCNVUnavailable}
	laterOn = []tpm2.TPMRC{tpm2.TPMRCObjectMemory, tpm2.TPMRCSessionMemory, tpm2.TPMRCMemory, tpm2.TPMRCSessionHandles, tpm2.TPMRCContextGap,
		tpm2.TPMRCLockout, tpm2.TPMRCReferenceH0, tpm2.TPMRCReferenceH6, tpm2.TPMRCReferenceS0, tpm2.TPMRCReferenceS6, tpm2.TPMRCUpgrade, tpm2.TPMRCPCRChanged, tpm2.TPMRCNeedsTest}
	forGood = []tpm2.TPMRC{tpm2.TPMRCObjectHandles, tpm2.TPMRCLocality, tpm2.TPMRCInitialize, tpm2.TPMRCReboot, tpm2.TPMRCFailure, tpm2.TPMRCDisabled, tpm2.TPMRCBadContext,
		tpm2.TPMRCAuthFail, tpm2.TPMRCBadAuth, tpm2.TPMRCAuthFail | 0x1c0, tpm2.TPMRCValue, tpm2.TPMRCHierarchy, tpm2.TPMRCIntegrity, tpm2.TPMRCHandle}
)

// A warning that passes by itself is waited for, with the same bytes and longer and longer
// pauses, and at last it is an error that a later call may not have.
func TestPassingWarnings(t *testing.T) {
	for _, rc := range passing {
		t.Run(rc.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				once := &answering{answers: []tpm2.TPMRC{rc, tpm2.TPMRCSuccess}}
				if err := flushOne(t.Context(), once); err != nil || len(once.sent) != 2 || !bytes.Equal(once.sent[0], once.sent[1]) {
					t.Errorf("once: %v after %x", err, once.sent)
				}
				if took := time.Since(began); took != firstPause {
					t.Errorf("a pause of %v", took)
				}
				began = time.Now()
				always := &answering{answers: []tpm2.TPMRC{rc}}
				err := flushOne(t.Context(), always)
				if !errors.Is(err, rc) || !errors.Is(err, refusal.ErrRetry) || len(always.sent) != MaxTries {
					t.Errorf("always: %v after %d", err, len(always.sent))
				}
				if took := time.Since(began); took != 127*firstPause {
					t.Errorf("pauses of %v", took)
				}
			})
		})
	}
}

// Nothing else is sent a second time, so that no wrong password is tried twice, and each says
// whether it passes.
func TestOtherAnswersAreNotSentAgain(t *testing.T) {
	for later, codes := range map[bool][]tpm2.TPMRC{true: laterOn, false: forGood} {
		for _, rc := range codes {
			a := &answering{answers: []tpm2.TPMRC{rc}}
			err := flushOne(t.Context(), a)
			if !errors.Is(err, rc) || errors.Is(err, refusal.ErrRetry) != later || len(a.sent) != 1 {
				t.Errorf("%v after %d, want that it passes: %t", err, len(a.sent), later)
			}
		}
	}
}

// Every warning of the TPM 2.0 Library has an explanation, which says who does what.
func TestWarningsSayWhatToDo(t *testing.T) {
	for rc, says := range map[tpm2.TPMRC]string{
		tpm2.TPMRCObjectMemory: "/dev/tpmrm0", tpm2.TPMRCSessionMemory: "tpm2_flushcontext", tpm2.TPMRCContextGap: "/dev/tpmrm0",
		tpm2.TPMRCReferenceH0: "reset", tpm2.TPMRCReferenceS1: "another program", tpm2.TPMRCLockout: "tpm2_dictionarylockout",
		tpm2.TPMRCNVRate: "less often", tpm2.TPMRCRetry: "busy", tpm2.TPMRCInitialize: "restart of the machine",
	} {
		err := explain(t.Context(), rc)
		if !errors.Is(err, rc) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	const notUsed, locality = 0x97f, tpm2.TPMRCLocality // whose cause is the caller's own
	for rc := tpm2.TPMRCContextGap; rc < notUsed; rc++ {
		if _, ok := warnings[rc]; !ok && !IsLost(rc) && rc != locality && !strings.HasPrefix(rc.Error(), "unknown warning") {
			t.Errorf("%v has no explanation", rc)
		}
	}
	if err := explain(t.Context(), tpmsim.ErrInjected); err != tpmsim.ErrInjected { //nolint:errorlint // the very error
		t.Errorf("got %v", err)
	}
}

// A context ends the pauses, and the error says both.
func TestContextEndsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*firstPause) // during the third pause
		defer cancel()
		a := &answering{answers: []tpm2.TPMRC{tpm2.TPMRCTesting}}
		err := flushOne(ctx, a)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, tpm2.TPMRCTesting) || len(a.sent) != 3 {
			t.Errorf("%v after %d", err, len(a.sent))
		}
		ctx, cancel = context.WithCancel(t.Context())
		a = &answering{answers: []tpm2.TPMRC{tpm2.TPMRCRetry}, before: cancel}
		if err := flushOne(ctx, a); !errors.Is(err, context.Canceled) || len(a.sent) != 1 {
			t.Errorf("%v after %d", err, len(a.sent))
		}
	})
}

// After the context is over, flushes and a caller's own commands are sent with the same patience.
func TestPatienceWithoutContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := &answering{answers: []tpm2.TPMRC{tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCSuccess}}
		if err := Share(a).Do(ctx, func(h *Handles) error {
			h.Keep(0x80000000, nil)
			cancel()
			return nil
		}); err != nil || len(a.sent) != 3 {
			t.Errorf("flushing: %v after %d", err, len(a.sent))
		}
		a.sent = nil
		if _, err := (tpm2.FlushContext{FlushHandle: tpm2.TPMHandle(0x80000000)}).Execute(Share(a)); err != nil || len(a.sent) != 3 {
			t.Errorf("a caller's own command: %v after %d", err, len(a.sent))
		}
	})
}

// A session that is gone, and a PCR that was extended, are worth sessions of their own again,
// with an end; nothing else is.
func TestAnew(t *testing.T) {
	for rc, want := range map[tpm2.TPMRC]int{
		tpm2.TPMRCReferenceS0: 3, tpm2.TPMRCReferenceH1: 3, tpm2.TPMRCPCRChanged: 3, tpm2.TPMRCRetry: 1, tpm2.TPMRCAuthFail: 1, tpm2.TPMRCPolicyFail: 1, tpm2.TPMRCLockout: 1,
	} {
		n := 0
		_, err := Anew(func() (struct{}, error) {
			if n++; n == 3 {
				return struct{}{}, nil
			}
			return struct{}{}, rc
		})
		if n != want || (err == nil) != (want == 3) {
			t.Errorf("%v: %v after %d", rc, err, n)
		}
	}
	n := 0
	if _, err := Anew(func() (struct{}, error) { n++; return struct{}{}, tpm2.TPMRCPCRChanged }); !errors.Is(err, tpm2.TPMRCPCRChanged) || n != MaxTries {
		t.Errorf("always: %v after %d", err, n)
	}
}

// A command keeps its session when it is sent again: nothing is started anew and the password's
// proof is the same.
func TestSessionsAreSentAgain(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("owner"))
	create := func(t *testing.T, tpm *tpmsim.FaultyTPM) error {
		_, err := do(t, tpm, func(ctx context.Context, h *Handles) (*LoadedKey, error) {
			return CreatePrimary(ctx, h, tpm2.TPMRHOwner, []byte("owner"), tpm2.Marshal(StorageRootKey()))
		})
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, nil)
		testkit.NoError(t, create(t, faulty))
		for n, code := range faulty.Commands() {
			again := tpmsim.Faulty(tpm, tpmsim.AnswerAt(n+1, tpm2.TPMRCRetry))
			if err := create(t, again); err != nil || again.Count() != faulty.Count()+1 || tpmlab.Count(again, code) != tpmlab.Count(faulty, code)+1 {
				t.Errorf("command %d (0x%x): %v, %v", n+1, code, err, again.Commands())
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		}
	})
}
