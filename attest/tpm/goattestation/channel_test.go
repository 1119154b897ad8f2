package goattestation

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// fixed is a transport with one response.
type fixed struct {
	response []byte
	err      error
}

func (f fixed) Send([]byte) ([]byte, error) { return f.response, f.err }

// A command and its response have sizes, and a response is read before the next command.
func TestChannelRefusals(t *testing.T) {
	command := make([]byte, headerSize)
	errOff := errors.New("switched off")
	for name, c := range map[string]struct {
		tpm     fixed
		command []byte
		want    string
	}{
		"no command":          {fixed{response: command}, nil, "command of 0 bytes, want 10 to 4096"},
		"less than a header":  {fixed{response: command}, command[1:], "command of 9 bytes"},
		"a long command":      {fixed{response: command}, make([]byte, maxMessage+1), "command of 4097 bytes"},
		"no response":         {fixed{}, command, "response of 0 bytes, want 10 to 4096"},
		"a long response":     {fixed{response: make([]byte, maxMessage+1)}, command, "response of 4097 bytes"},
		"of the transport":    {fixed{err: errOff}, command, errOff.Error()},
		"the longest of both": {fixed{response: make([]byte, maxMessage)}, make([]byte, maxMessage), ""},
	} {
		channel := testkit.Must(NewChannel(c.tpm, nil))
		n, err := channel.Write(c.command)
		if c.want == "" {
			if n != len(c.command) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			continue
		}
		if n != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := channel.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s: read %d, %v", name, n, err)
		}
	}
	if _, err := NewChannel(nil, nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no TPM: %v", err)
	}
	if _, err := new(Channel).Write(command); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a zero Channel: %v", err)
	}
}

// A response is read in parts of any size, once; a command in between is an error, and takes
// nothing of it away.
func TestChannelReadsInParts(t *testing.T) {
	response := []byte("0123456789ab")
	channel := testkit.Must(NewChannel(fixed{response: response}, nil))
	command := make([]byte, headerSize)
	_, err := channel.Write(command)
	testkit.NoError(t, err)
	var got []byte
	for part := make([]byte, 5); len(got) < len(response); {
		if _, err := channel.Write(command); err == nil || !strings.Contains(err.Error(), "unread") {
			t.Fatalf("a command in between: %v", err)
		}
		n, err := channel.Read(part)
		testkit.NoError(t, err)
		got = append(got, part[:n]...)
	}
	if !bytes.Equal(got, response) {
		t.Errorf("got %q", got)
	}
	if _, err := channel.Write(command); err != nil {
		t.Errorf("the next command: %v", err)
	}
}

// Closing go-attestation's TPM leaves the device to its other users.
func TestChannelCloseLeavesTPMOpen(t *testing.T) {
	device := tpmkey.Share(tpmsim.New(t, tpmsim.Options{}))
	client := clientOf(t, device)
	_, err := client.Info()
	testkit.NoError(t, err)
	testkit.NoError(t, client.Close())
	testkit.NoError(t, client.Close())
	if _, err := client.Info(); err == nil || !strings.Contains(err.Error(), os.ErrClosed.Error()) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := (tpm2.GetRandom{BytesRequested: 8}).Execute(device); err != nil {
		t.Errorf("the device: %v", err)
	}
}

// go-tpm's own reader and writer over a transport fails in go-attestation, or there would be no
// Channel.
func TestToReadWriterFailsThere(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	client, err := goattest.OpenTPM(&goattest.OpenConfig{CommandChannel: &ownChannel{ReadWriter: transport.ToReadWriter(device)}})
	testkit.NoError(t, err)
	if _, err := client.Info(); !errors.Is(err, io.EOF) && (err == nil || !strings.Contains(err.Error(), "EOF")) {
		t.Errorf("got %v, want io.EOF", err)
	}
}

// ownChannel is a CommandChannel that a program has written.
type ownChannel struct {
	io.ReadWriter
	closed bool
}

func (c *ownChannel) Close() error { c.closed = true; return nil }

func (c *ownChannel) MeasurementLog() ([]byte, error) { return bytes.Repeat([]byte{1}, 28), nil }

// A program that has a CommandChannel lends it to both libraries, through Transport and a new
// Channel, and nothing closes it.
func TestTransportOfChannel(t *testing.T) {
	simulated := tpmsim.New(t, tpmsim.Options{})
	own := &ownChannel{ReadWriter: testkit.Must(NewChannel(simulated, nil))}
	device := Transport(own)
	if tpmkey.Share(device) != device {
		t.Error("not a shared TPM")
	}
	channel := testkit.Must(NewChannel(device, func(context.Context) ([]byte, error) { return own.MeasurementLog() }))
	client, err := goattest.OpenTPM(&goattest.OpenConfig{CommandChannel: channel})
	testkit.NoError(t, err)
	ak := testkit.Must(client.NewAK(nil))
	source := testkit.Must(AKSource(testkit.Must(ak.Marshal()), nil))
	testkit.NoError(t, ak.Close(client))
	if _, err := tpm.AKPublic(t.Context(), device, source, tpm.ProverOptions{}.EndorsementPassword); err != nil {
		t.Error(err)
	}
	if log, err := EventLog(client)(t.Context()); err != nil || len(log) != 28 {
		t.Errorf("event log of %d bytes, %v", len(log), err)
	}
	testkit.NoError(t, client.Close())
	tpmlab.CheckNothingLoaded(t, device)
	if own.closed {
		t.Error("closed by another")
	}
	if _, err := Transport(nil).Send(make([]byte, headerSize)); err == nil {
		t.Error("a transport over no channel sends")
	}
}

func TestEventLogAbsent(t *testing.T) {
	if _, err := EventLog(nil)(t.Context()); err == nil {
		t.Error("a log of no TPM")
	}
	if _, err := EventLog(clientOf(t, fixed{}))(t.Context()); err == nil || !strings.Contains(err.Error(), "NewChannel was given no function") {
		t.Errorf("got %v", err)
	}
}

// Two of go-attestation and two Provers use one TPM at once: each operation of a Prover has the
// TPM for itself, and go-attestation's commands come between them.
func TestShared(t *testing.T) {
	device := tpmkey.Share(tpmsim.New(t, tpmsim.Options{PersistEKs: true}))
	first := clientOf(t, device)
	ak := testkit.Must(first.NewAK(&goattest.AKConfig{Algorithm: goattest.ECDSA}))
	blob := testkit.Must(ak.Marshal())
	testkit.NoError(t, ak.Close(first))
	origin := tpm.EKP256()
	origin.Handle, origin.Template, origin.TemplateIndex, origin.NonceIndex = 0x81010002, nil, 0, 0

	var group sync.WaitGroup
	for range 2 {
		prover, err := tpm.NewProver(device, testkit.Must(AKSource(blob, nil)), tpm.ProverOptions{EK: &origin})
		testkit.NoError(t, err)
		group.Go(func() {
			for range 10 {
				if err := prover.Use(t.Context(), attest.StageHello, func(s attest.Session) error { _, err := s.Present(); return err }); err != nil {
					t.Error(err)
				}
			}
		})
		client := clientOf(t, device)
		group.Go(func() {
			for range 10 {
				if pcrs, err := client.PCRs(goattest.HashSHA256); err != nil || len(pcrs) != 24 {
					t.Errorf("%d PCRs, %v", len(pcrs), err)
				}
			}
		})
	}
	group.Wait()
	tpmlab.CheckNothingLoaded(t, device)
}
