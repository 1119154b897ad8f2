package authenticator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestLyingTPM: whatever a TPM answers, an attempt ends without harm.
func TestLyingTPM(t *testing.T) {
	l := newLies(t, 30)
	device := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.P256}, PersistEKs: true})
	const handle = 0x81020000
	const password = "hunter2hunter3"
	l.secrets = append(l.secrets, []byte(password))
	chain := makersKey(t, device, handle, password)
	file := filepath.Join(t.TempDir(), "password")
	testkit.MustDo(os.WriteFile(file, []byte(password), 0o600))
	n := 0
	l.run(func() (*Authenticator, liar) {
		liar := &lyingTPM{TPM: device, l: l}
		n++
		a, _ := tpmNode(t, l.f, device, func(k *TPM) {
			k.Device = func() (transport.TPMCloser, error) { return liar, nil }
			ek := tpm.EKP256()
			switch k.PersistentEK, k.Options.EK = 0x81010002, &ek; n % 3 {
			case 1: // a maker's key, with a password
				k.AK, k.AKPasswordFile, k.PersistentEK, k.Options = tpm.AKSource{Handle: handle}, file, 0, tpm.ProverOptions{Certificates: chain}
			case 2:
				k.PersistentEK = 0
			}
		})
		a.config.RecoverySigner = csr.SignerRecoveryTPM
		return a, liar
	})
}

// lyingTPM changes some of the answers of a TPM.
type lyingTPM struct {
	transport.TPM
	l *lies

	mu    sync.Mutex
	which func(n int) bool // nil: none
	n     int              // commands
	past  [][]byte         // answers
	end   context.CancelFunc
	heard chan struct{} // is closed when a silence ends
}

// maxCommands is more than an attempt makes, whatever is answered.
const maxCommands = 2000

func (d *lyingTPM) Close() error { return nil }

func (d *lyingTPM) lie(end context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.which, d.n, d.past, d.end, d.heard = d.l.which(40), 0, nil, end, make(chan struct{})
}

func (d *lyingTPM) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.which = nil
	close(d.heard)
}

func (d *lyingTPM) tidy() {
	left, err := tpmsim.LoadedHandles(d.TPM)
	for _, handle := range left {
		_, wrong := tpm2.FlushContext{FlushHandle: handle}.Execute(d.TPM)
		err = errors.Join(err, wrong)
	}
	if err != nil {
		d.l.t.Fatal(err)
	}
	tpmlab.ForgetPasswords(d.l.t, d.TPM)
}

// Send sends a command, and lies about the answer if it is its turn.
func (d *lyingTPM) Send(command []byte) ([]byte, error) {
	good, err := d.TPM.Send(command)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.which == nil || err != nil {
		return good, err
	}
	if d.n++; d.n == maxCommands {
		d.l.t.Errorf("%d commands, the last of them %x", d.n, command)
		d.end()
	}
	d.past = append(d.past, bytes.Clone(good))
	if !d.which(d.n) {
		return good, nil
	}
	lie := oneOf(d.l, tpmLies)
	d.l.count(lie.name)
	if lie.say != nil {
		return lie.say(d, command, bytes.Clone(good)), nil
	}
	d.end()
	heard := d.heard
	d.mu.Unlock()
	<-heard
	d.mu.Lock()
	return good, nil
}

// A response is a tag of 2 bytes, its size in 4, a code in 4 and the rest (TPM 2.0 Library, Part
// 1, 18.9).
const headerSize = 10

// sized gives a response the size that it has.
func sized(b []byte) []byte {
	if len(b) >= 6 {
		binary.BigEndian.PutUint32(b[2:], uint32(len(b)))
	}
	return b
}

// tpmLies are the lies, of which nil is silence.
var tpmLies = []struct {
	name string
	say  func(d *lyingTPM, command, good []byte) []byte
}{
	{"silence", nil},
	{"a bit", func(d *lyingTPM, _, b []byte) []byte {
		return d.changed(b, 1, func(p []byte) { p[0] ^= 1 << d.l.IntN(8) })
	}},
	{"bytes", func(d *lyingTPM, _, b []byte) []byte {
		for range 1 + d.l.IntN(200) {
			d.changed(b, 1, func(p []byte) { p[0] = byte(d.l.IntN(256)) })
		}
		return b
	}},
	{"a short integer", func(d *lyingTPM, _, b []byte) []byte {
		return d.changed(b, 2, func(p []byte) {
			binary.BigEndian.PutUint16(p, oneOf(d.l, []uint16{0, 1, 2, 64, 65, 128, 255, 256, 4096, 0x7fff, 0x8000, 0xffff}))
		})
	}},
	{"an integer", func(d *lyingTPM, _, b []byte) []byte {
		return d.changed(b, 4, func(p []byte) {
			binary.BigEndian.PutUint32(p, oneOf(d.l, []uint32{0, 1, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 0x81010001, 0x40000001, 0x4000000b, 0x02000000, 0x03000000}))
		})
	}},
	{"cut", func(d *lyingTPM, _, b []byte) []byte { return sized(b[:d.l.IntN(len(b)+1)]) }},
	{"cut, of the size before", func(d *lyingTPM, _, b []byte) []byte { return b[:d.l.IntN(len(b)+1)] }},
	{"longer", func(d *lyingTPM, _, b []byte) []byte { return sized(append(b, make([]byte, d.l.IntN(4096))...)) }},
	{"a mebibyte", func(_ *lyingTPM, _, b []byte) []byte { return sized(append(b, make([]byte, 1<<20)...)) }},
	{"zeros", func(d *lyingTPM, _, _ []byte) []byte { return make([]byte, d.l.IntN(100)) }},
	{"another tag", func(d *lyingTPM, _, b []byte) []byte {
		binary.BigEndian.PutUint16(b, oneOf(d.l, []uint16{0, 0x00c4, 0x8001, 0x8002, 0xffff}))
		return b
	}},
	{"an error", func(d *lyingTPM, _, b []byte) []byte {
		binary.BigEndian.PutUint16(b, uint16(tpm2.TPMSTNoSessions))
		return sized(d.coded(b)[:headerSize])
	}},
	{"an error and an answer", func(d *lyingTPM, _, b []byte) []byte { return d.coded(b) }},
	{"an earlier answer", func(d *lyingTPM, _, _ []byte) []byte { return bytes.Clone(oneOf(d.l, d.past)) }},
	{"the answer before", func(d *lyingTPM, _, _ []byte) []byte { return bytes.Clone(d.past[max(0, len(d.past)-2)]) }},
	{"the command", func(_ *lyingTPM, command, _ []byte) []byte { return bytes.Clone(command) }},
	{"the command as an answer", func(_ *lyingTPM, command, b []byte) []byte {
		return sized(append(b[:headerSize:headerSize], command[headerSize:]...))
	}},
}

// changed changes so many bytes somewhere behind the header, if there are as many.
func (d *lyingTPM) changed(b []byte, size int, change func(p []byte)) []byte {
	if n := len(b) - headerSize - size; n >= 0 {
		change(b[headerSize+d.l.IntN(n+1):])
	}
	return b
}

// coded gives a response the code of an error.
func (d *lyingTPM) coded(b []byte) []byte {
	binary.BigEndian.PutUint32(b[6:], uint32(oneOf(d.l, []tpm2.TPMRC{tpm2.TPMRCInitialize, tpm2.TPMRCFailure, tpm2.TPMRCAuthFail, tpm2.TPMRCBadAuth, tpm2.TPMRCLockout, tpm2.TPMRCRetry,
		tpm2.TPMRCYielded, tpm2.TPMRCCanceled, tpm2.TPMRCTesting, tpm2.TPMRCObjectMemory, tpm2.TPMRCSessionMemory, tpm2.TPMRCObjectHandles, tpm2.TPMRCSessionHandles, tpm2.TPMRCHandle,
		tpm2.TPMRCReferenceH0, tpm2.TPMRCNVRate, tpm2.TPMRCValue, tpm2.TPMRCCommandCode, tpm2.TPMRC(1), tpm2.TPMRC(0x8b), tpm2.TPMRC(0x1c4), tpm2.TPMRC(0xffffffff)})))
	return b
}
