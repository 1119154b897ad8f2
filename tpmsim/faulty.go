package tpmsim

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// Fault is what happens to one command. The zero value is no fault: the command runs.
// Of several fields, Before acts first; then the first of Drop, Err and RC
// that is set decides.
type Fault struct {
	// Before, if set, is called before anything else: a test cancels a context here,
	// waits, or looks at the TPM. It must not send to the same FaultyTPM.
	Before func()

	// Drop breaks the connection: this command and all later ones return ErrDropped.
	Drop bool

	// Err is returned by Send in place of a response.
	Err error

	// Late says that the TPM executes the command before Drop or Err happens, so that
	// its response, and perhaps a handle in it, is lost.
	Late bool

	// RC is the response code of the TPM's answer; the command is not executed.
	RC tpm2.TPMRC
}

// Faults say what happens to the n-th command, counted from 1, which has the code cc. Nil
// is no faults.
type Faults func(n int, cc tpm2.TPMCC) Fault

// At is the faults that one command has, the n-th counted from 1.
func At(n int, f Fault) Faults {
	return func(i int, _ tpm2.TPMCC) Fault {
		if i == n {
			return f
		}
		return Fault{}
	}
}

// FailAt is the faults that have one command fail, the n-th counted from 1, with
// err, or with ErrInjected if err is nil. The TPM does not see the command.
func FailAt(n int, err error) Faults {
	return At(n, Fault{Err: cmp.Or(err, error(ErrInjected))})
}

// LoseAt is the faults that have the TPM execute the n-th command, counted from 1,
// and its response get lost: Send returns ErrInjected.
func LoseAt(n int) Faults { return At(n, Fault{Err: ErrInjected, Late: true}) }

// AnswerAt is the faults that have the n-th command, counted from 1, answered with a
// response code in place of being executed.
func AnswerAt(n int, rc tpm2.TPMRC) Faults { return At(n, Fault{RC: rc}) }

// DropAt is the faults that have the connection break before the n-th command,
// counted from 1: it and all later ones return ErrDropped.
func DropAt(n int) Faults { return At(n, Fault{Drop: true}) }

// Every is the faults that every command of this code has.
func Every(code tpm2.TPMCC, f Fault) Faults {
	return func(_ int, cc tpm2.TPMCC) Fault {
		if cc == code {
			return f
		}
		return Fault{}
	}
}

// FailEvery is the faults that have every command of this code answered with a
// response code.
func FailEvery(cc tpm2.TPMCC, rc tpm2.TPMRC) Faults { return Every(cc, Fault{RC: rc}) }

// FaultyTPM is a TPM with faults. It counts and records the commands that are sent
// to it, those that failed too. It is safe for concurrent use, also around a TPM
// that is not: commands queue up.
type FaultyTPM struct {
	tpm  transport.TPM
	send sync.Mutex // held while a command runs

	mu       sync.Mutex // guards what follows
	faults   Faults
	commands []tpm2.TPMCC
	dropped  bool
}

// Faulty puts faults in front of a TPM. nil faults: none, commands are recorded
// only.
func Faulty(tpm transport.TPM, f Faults) *FaultyTPM {
	return &FaultyTPM{tpm: tpm, faults: f}
}

// SetFaults starts anew: with other faults, no commands counted, the connection up
// again.
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
		return response(f.RC), nil
	}
	rsp, err := t.tpm.Send(cmd)
	if err == nil && f.Err != nil {
		return nil, f.Err
	}
	return rsp, err
}

// next records a command and says what happens to it: of a connection that is dropped,
// the error.
func (t *FaultyTPM) next(cmd []byte) Fault {
	var cc tpm2.TPMCC
	if len(cmd) >= commandHeaderSize {
		cc = tpm2.TPMCC(binary.BigEndian.Uint32(cmd[6:10]))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commands = append(t.commands, cc)
	switch {
	case t.dropped:
		return Fault{Err: ErrDropped}
	case t.faults == nil:
		return Fault{}
	}
	f := t.faults(len(t.commands), cc)
	if t.dropped = f.Drop; f.Drop {
		f.Err = ErrDropped
	}
	return f
}

// response is a response without parameters (TPM 2.0 Part 1, section 18).
func response(rc tpm2.TPMRC) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(tpm2.TPMSTNoSessions))
	b = binary.BigEndian.AppendUint32(b, commandHeaderSize)
	return binary.BigEndian.AppendUint32(b, uint32(rc))
}

// Count returns how many commands were sent since the start or the last SetFaults.
func (t *FaultyTPM) Count() int { return len(t.Commands()) }

// Commands returns the codes of the commands that were sent since the start or the
// last SetFaults, in their order; 0 for one too short to have a code.
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
