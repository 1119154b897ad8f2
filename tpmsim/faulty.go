package tpmsim

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// Fault is what happens to one command. The zero value is no fault: the command runs.
// Of several fields, Before and Delay act first; then the first of Drop, Err and RC
// that is set decides.
type Fault struct {
	// Before, if set, is called before anything else: a test cancels a context here,
	// or looks at the TPM. It must not send to the same FaultyTPM.
	Before func()

	// Delay makes the TPM slow.
	Delay time.Duration

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

// Faults say which commands fail. The zero value has no faults.
type Faults struct {
	// At maps the number of a command, counted from 1, to its fault.
	At map[int]Fault

	// Each, if set, is asked for every command that At does not name.
	Each func(n int, cc tpm2.TPMCC) Fault
}

// FailAt is the faults that have one command fail, the n-th counted from 1, with
// err, or with ErrInjected if err is nil. The TPM does not see the command.
func FailAt(n int, err error) *Faults {
	if err == nil {
		err = ErrInjected
	}
	return &Faults{At: map[int]Fault{n: {Err: err}}}
}

// LoseAt is the faults that have the TPM execute the n-th command, counted from 1,
// and its response get lost: Send returns ErrInjected.
func LoseAt(n int) *Faults {
	return &Faults{At: map[int]Fault{n: {Err: ErrInjected, Late: true}}}
}

// AnswerAt is the faults that have the n-th command, counted from 1, answered with a
// response code in place of being executed.
func AnswerAt(n int, rc tpm2.TPMRC) *Faults {
	return &Faults{At: map[int]Fault{n: {RC: rc}}}
}

// DropAt is the faults that have the connection break before the n-th command,
// counted from 1: it and all later ones return ErrDropped.
func DropAt(n int) *Faults {
	return &Faults{At: map[int]Fault{n: {Drop: true}}}
}

// FailEvery is the faults that have every command of this code answered with a
// response code.
func FailEvery(cc tpm2.TPMCC, rc tpm2.TPMRC) *Faults {
	return &Faults{Each: func(_ int, c tpm2.TPMCC) Fault {
		if c == cc {
			return Fault{RC: rc}
		}
		return Fault{}
	}}
}

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
// only. The Faults are copied, their map too.
func Faulty(tpm transport.TPM, f *Faults) *FaultyTPM {
	t := &FaultyTPM{tpm: tpm}
	t.SetFaults(f)
	return t
}

// SetFaults starts anew: with other faults, no commands counted, the connection up
// again.
func (t *FaultyTPM) SetFaults(f *Faults) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = Faults{}
	if f != nil {
		t.faults.Each = f.Each
		t.faults.At = maps.Clone(f.At)
	}
	t.commands, t.dropped = nil, false
}

// Send runs the command or its fault.
func (t *FaultyTPM) Send(cmd []byte) ([]byte, error) {
	t.send.Lock()
	defer t.send.Unlock()
	f := t.next(cmd)
	if f.Before != nil {
		f.Before()
	}
	if f.Delay > 0 {
		time.Sleep(f.Delay)
	}
	if f.Drop {
		t.mu.Lock()
		again := t.dropped
		t.dropped = true
		t.mu.Unlock()
		f.Late = f.Late && !again
		f.Err = ErrDropped
	}
	if f.Err != nil {
		if f.Late {
			if _, err := t.tpm.Send(cmd); err != nil {
				return nil, err
			}
		}
		return nil, f.Err
	}
	if f.RC != tpm2.TPMRCSuccess {
		return response(f.RC), nil
	}
	return t.tpm.Send(cmd)
}

// next records a command and says what happens to it.
func (t *FaultyTPM) next(cmd []byte) Fault {
	var cc tpm2.TPMCC
	if len(cmd) >= commandHeaderSize {
		cc = tpm2.TPMCC(binary.BigEndian.Uint32(cmd[6:10]))
	}
	t.mu.Lock()
	t.commands = append(t.commands, cc)
	n, dropped, each := len(t.commands), t.dropped, t.faults.Each
	f, ok := t.faults.At[n]
	t.mu.Unlock()
	if dropped {
		return Fault{Drop: true}
	}
	if !ok && each != nil {
		f = each(n, cc)
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
func (t *FaultyTPM) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.commands)
}

// Commands returns the codes of the commands that were sent since the start or the
// last SetFaults, in their order; 0 for one too short to have a code.
func (t *FaultyTPM) Commands() []tpm2.TPMCC {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.commands)
}

// Names returns the names of Commands, as [CommandName] gives them.
func (t *FaultyTPM) Names() []string {
	var names []string
	for _, cc := range t.Commands() {
		names = append(names, CommandName(cc))
	}
	return names
}

// Dropped reports whether a fault broke the connection.
func (t *FaultyTPM) Dropped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped
}
