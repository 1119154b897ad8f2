package tpmsim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// Fault is what happens to one command. The zero value is no fault: the command runs.
// If several fields are set, Before acts first; then the first of Err and RC that is set
// decides.
type Fault struct {
	// Before, if set, is called before anything else: here a test can cancel a context,
	// wait, or look at the TPM. It must not send to the same FaultyTPM.
	Before func()

	// Err is returned by Send instead of a response. ErrDropped breaks the connection: all
	// later commands return it, too.
	Err error

	// Late says that the TPM executes the command before Err happens, so that its response,
	// and perhaps a handle in it, is lost.
	Late bool

	// RC is the response code of the TPM's answer; the command is not executed.
	RC tpm2.TPMRC
}

// Faults says what happens to the n-th command, counted from 1, which has the code cc. Nil
// means no faults.
type Faults func(n int, cc tpm2.TPMCC) Fault

// At returns Faults that affect only the n-th command, counted from 1.
func At(n int, f Fault) Faults {
	return when(func(i int, _ tpm2.TPMCC) bool { return i == n }, f)
}

// when returns Faults that affect each command for which hit is true.
func when(hit func(n int, cc tpm2.TPMCC) bool, f Fault) Faults {
	return func(n int, cc tpm2.TPMCC) Fault {
		if hit(n, cc) {
			return f
		}
		return Fault{}
	}
}

// FailAt returns Faults that make the n-th command, counted from 1, fail with err, or with
// ErrInjected if err is nil. The TPM does not see the command.
func FailAt(n int, err error) Faults {
	return At(n, Fault{Err: cmp.Or(err, ErrInjected)})
}

// LoseAt returns Faults that have the TPM execute the n-th command, counted from 1, but lose
// its response: Send returns ErrInjected.
func LoseAt(n int) Faults { return At(n, Fault{Err: ErrInjected, Late: true}) }

// AnswerAt returns Faults that have the n-th command, counted from 1, answered with a
// response code instead of being executed.
func AnswerAt(n int, rc tpm2.TPMRC) Faults { return At(n, Fault{RC: rc}) }

// DropAt returns Faults that break the connection before the n-th command, counted from 1:
// it and all later ones return ErrDropped.
func DropAt(n int) Faults { return At(n, Fault{Err: ErrDropped}) }

// Every returns Faults that affect every command with this code.
func Every(code tpm2.TPMCC, f Fault) Faults {
	return when(func(_ int, cc tpm2.TPMCC) bool { return cc == code }, f)
}

// FailEvery returns Faults that have every command with this code answered with a response
// code.
func FailEvery(cc tpm2.TPMCC, rc tpm2.TPMRC) Faults { return Every(cc, Fault{RC: rc}) }

// FaultyTPM is a TPM with faults. It counts and records the commands that are sent to it, including
// failed ones. It is safe for concurrent use, even if the TPM that it wraps is not: commands queue
// up.
type FaultyTPM struct {
	tpm  transport.TPM
	send sync.Mutex // held while a command runs

	mu       sync.Mutex // guards the following fields
	faults   Faults
	commands []tpm2.TPMCC
	dropped  bool
}

// Faulty wraps a TPM with faults. If f is nil, commands are only recorded.
func Faulty(tpm transport.TPM, f Faults) *FaultyTPM {
	return &FaultyTPM{tpm: tpm, faults: f}
}

// SetFaults starts over with other faults, no commands counted and the connection restored.
func (t *FaultyTPM) SetFaults(f Faults) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults, t.commands, t.dropped = f, nil, false
}

// Send runs the command or its fault.
func (t *FaultyTPM) Send(cmd []byte) ([]byte, error) {
	t.send.Lock()
	defer t.send.Unlock()
	f := t.next(cmd)
	if f.Before != nil {
		f.Before()
	}
	if f.Err != nil && !f.Late {
		return nil, f.Err
	}
	if f.Err == nil && f.RC != tpm2.TPMRCSuccess {
		// A response without sessions or parameters (TPM 2.0 Part 1, section 18).
		return binary.BigEndian.AppendUint32([]byte{0x80, 0x01, 0, 0, 0, commandHeaderSize}, uint32(f.RC)), nil
	}
	rsp, err := t.tpm.Send(cmd)
	if err == nil && f.Err != nil {
		return nil, f.Err
	}
	return rsp, err
}

// next records a command and returns what happens to it: on a dropped connection, the
// error.
func (t *FaultyTPM) next(cmd []byte) Fault {
	var cc tpm2.TPMCC
	if len(cmd) >= commandHeaderSize {
		cc = tpm2.TPMCC(binary.BigEndian.Uint32(cmd[6:10]))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commands = append(t.commands, cc)
	if t.dropped {
		return Fault{Err: ErrDropped}
	}
	if t.faults == nil {
		return Fault{}
	}
	f := t.faults(len(t.commands), cc)
	t.dropped = errors.Is(f.Err, ErrDropped)
	return f
}

// Count returns how many commands have been sent since the start or the last SetFaults.
func (t *FaultyTPM) Count() int { return len(t.Commands()) }

// Commands returns the codes of the commands that have been sent since the start or the
// last SetFaults, in order; 0 for one too short to have a code.
func (t *FaultyTPM) Commands() []tpm2.TPMCC {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.commands)
}

// Dropped reports whether a fault broke the connection.
func (t *FaultyTPM) Dropped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped
}
