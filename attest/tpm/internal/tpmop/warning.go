package tpmop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// A warning is a response code by which a TPM says that its own state keeps it from a command,
// not the command (Part 2, 6.6.3). The TPM has then changed nothing, so neither has a session of
// the command: it takes the same bytes again.
type warning struct {
	again bool   // it passes by itself: the command is sent again after a pause
	final bool   // it does not pass: no later call succeeds
	means string // the cause, and what to do
}

const (
	busy  = "the TPM was busy all the time: try again later"
	full  = "the TPM has no room left: programs that use it without a resource manager, or were killed, left objects or sessions in it. Let all programs open /dev/tpmrm0, not /dev/tpm0: the kernel then keeps them apart. An administrator removes what is left with tpm2_flushcontext, or by a restart of the machine"
	lost  = "what was loaded for it is gone: the TPM was reset, or another program flushed it. Let all programs open /dev/tpmrm0, and try again"
	reset = "a restart of the machine is needed"
)

// warnings are the response codes of Part 2, 6.6.3, and errors like them.
var warnings = map[tpm2.TPMRC]warning{
	tpm2.TPMRCRetry:    {again: true, means: busy},
	tpm2.TPMRCYielded:  {again: true, means: busy},
	tpm2.TPMRCTesting:  {again: true, means: busy},
	tpm2.TPMRCCanceled: {again: true, means: "the system canceled the command each time: try again later"},
	tpm2.TPMRCNVRate:   {again: true, means: "the TPM slows down writing to its NV memory, which wears out: try again in some minutes, and have programs write there less often"},
	tpm2.TPMRCNVUnavailable: {again: true,
		means: "the TPM could not write to its NV memory all the time: try again later"},

	tpm2.TPMRCObjectMemory:   {means: full},
	tpm2.TPMRCSessionMemory:  {means: full},
	tpm2.TPMRCMemory:         {means: full},
	tpm2.TPMRCSessionHandles: {means: full},
	tpm2.TPMRCContextGap:     {means: full},
	tpm2.TPMRCObjectHandles:  {final: true, means: "the TPM has no more handles: " + reset},
	tpm2.TPMRCLockout:        {means: "the TPM has counted too many wrong passwords, of whatever program: it uses no key that is protected so until it has forgotten some, or its owner resets the count (tpm2_dictionarylockout)"},

	tpm2.TPMRCPCRChanged: {means: "PCRs were extended each time while the policy of the key was checked: try again"},
	tpm2.TPMRCUpgrade:    {means: "the TPM's firmware is being updated: try again afterwards"},
	tpm2.TPMRCNeedsTest:  {means: "the TPM has not tested what the command needs: run tpm2_selftest, or restart the machine"},
	tpm2.TPMRCInitialize: {final: true, means: "the TPM was started without the TPM2_Startup that firmware sends: " + reset},
	tpm2.TPMRCReboot:     {final: true, means: reset},
}

// IsLost reports whether the TPM answered that an object or a session which a command names is
// not loaded (TPM_RC_REFERENCE_H0 to H6 and S0 to S6).
func IsLost(err error) bool {
	rc, ok := errors.AsType[tpm2.TPMRC](err)
	return ok && (rc >= tpm2.TPMRCReferenceH0 && rc <= tpm2.TPMRCReferenceH6 || rc >= tpm2.TPMRCReferenceS0 && rc <= tpm2.TPMRCReferenceS6)
}

// explain adds a warning's meaning. The error matches [refusal.ErrRetry] if it may pass. ctx is the
// command's: if it is over, the command may have been given up for that.
func explain(ctx context.Context, err error) error {
	rc, _ := errors.AsType[tpm2.TPMRC](err) // 0, which is no warning, if it is not an answer
	w, ok := warnings[rc]
	if IsLost(err) {
		w, ok = warning{means: lost}, true
	}
	if over := ctx.Err(); w.again && over != nil {
		return fmt.Errorf("%w: %w", err, over)
	}
	if !ok {
		return err
	}
	if err = fmt.Errorf("%w: %s", err, w.means); w.final {
		return err
	}
	return refusal.Retry(err)
}

// IsUnfit reports whether the TPM refuses a command's content (a response code of format one, as
// TPM_RC_CURVE, or TPM_RC_BAD_CONTEXT; Part 2, 6.6): the same is refused again, another may not be.
func IsUnfit(err error) bool {
	return errors.As(err, new(tpm2.TPMFmt1Error)) || errors.Is(err, tpm2.TPMRCBadContext)
}

// How often a command is sent in all, and the first pause, each of which is twice the one
// before it: two and a half seconds in all, as Linux waits for a TPM that tests itself.
const (
	MaxTries   = 8
	firstPause = 20 * time.Millisecond
)

// patient sends a command again while the TPM answers with a warning that passes by itself. A TPM
// does so at the first use of a key without noDA after a reset (as on Google Compute Engine) while
// it records that the counting of wrong passwords has begun; when it has to test an algorithm
// first, as swtpm does; and when it spares its memory.
type patient struct {
	tpm transport.TPM
	ctx context.Context // ends the pauses
}

// Send sends a command, and returns the TPM's last answer. A panic of the transport becomes an
// error, so that loaded objects are flushed.
func (p *patient) Send(command []byte) ([]byte, error) {
	pause := firstPause
	for n := 1; ; n++ {
		var rsp []byte
		err := recovered.Call(func() (err error) {
			rsp, err = p.tpm.Send(command)
			return err
		})
		if err != nil || n == MaxTries || !isAgain(rsp) {
			return rsp, err
		}
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
			return rsp, nil
		}
		pause *= 2
	}
}

// isAgain reports whether a response says that the command can be sent again.
func isAgain(rsp []byte) bool {
	return len(rsp) >= 10 && warnings[tpm2.TPMRC(binary.BigEndian.Uint32(rsp[6:]))].again
}

// during returns the TPM with pauses that end with ctx.
func during(ctx context.Context, tpm transport.TPM) transport.TPM {
	if p, ok := tpm.(*patient); ok {
		return &patient{p.tpm, ctx}
	}
	return tpm
}

// Anew repeats f, which starts the sessions of its command itself, up to MaxTries times in all,
// while the TPM says that they are gone, or that a PCR was extended after the policy was checked:
// any PCR, also one that the policy does not name (TPM_RC_PCR_CHANGED; Part 3, 23.7).
func Anew[R any](f func() (R, error)) (rsp R, err error) {
	for range MaxTries {
		if rsp, err = f(); !IsLost(err) && !errors.Is(err, tpm2.TPMRCPCRChanged) {
			break
		}
	}
	return rsp, err
}
