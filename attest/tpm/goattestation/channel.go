package goattestation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxMessage is the size of the buffer into which go-attestation reads a response, in bytes. A
// command or a response has at least a header.
const maxMessage, headerSize = 4096, 10

// Channel is a go-tpm transport as an attest.CommandChannelTPM20. go-attestation writes a command
// and reads its response: a second command before the response was read is an error, so that two
// goroutines that use one attest.TPM do not get each other's responses.
//
// transport.ToReadWriter does not serve here: it returns io.EOF with the last byte of a response,
// which go-attestation takes for a failure.
type Channel struct {
	tpm      transport.TPM
	eventLog func(ctx context.Context) ([]byte, error)

	mu       sync.Mutex // guards the fields below
	response []byte     // the unread rest of the last response
	closed   bool
}

// NewChannel returns a Channel for tpm, which is usually one that [tpmkey.Share] returned and
// that a Prover uses too. eventLog reads the firmware's event log, and may be the one of
// tpm.ProverOptions; nil if go-attestation is not asked for it. The error matches
// [refusal.CheckConfig].
func NewChannel(tpm transport.TPM, eventLog func(ctx context.Context) ([]byte, error)) (*Channel, error) {
	if tpm == nil {
		return nil, refusal.Config("TPM", "", "one")
	}
	return &Channel{tpm: tpm, eventLog: eventLog}, nil
}

// Write sends one command, of 10 to 4096 bytes, and keeps the response for Read. After Close the
// error is [os.ErrClosed]; others are the transport's.
func (c *Channel) Write(command []byte) (int, error) {
	if n := len(command); n < headerSize || n > maxMessage {
		return 0, fmt.Errorf("goattestation: command of %d bytes, want %d to %d", n, headerSize, maxMessage)
	}
	c = cmp.Or(c, new(Channel))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || c.tpm == nil:
		return 0, fmt.Errorf("goattestation: command after Close: %w", os.ErrClosed)
	case len(c.response) != 0:
		return 0, fmt.Errorf("goattestation: a command while %d bytes of the last response are unread: one goroutine at a time uses a Channel",
			len(c.response))
	}
	response, err := c.tpm.Send(bytes.Clone(command))
	if err != nil {
		return 0, err
	}
	if n := len(response); n < headerSize || n > maxMessage {
		return 0, fmt.Errorf("goattestation: response of %d bytes, want %d to %d", n, headerSize, maxMessage)
	}
	c.response = bytes.Clone(response)
	return len(command), nil
}

// Read returns the response to the last command, or the next part of it if b is shorter.
func (c *Channel) Read(b []byte) (int, error) {
	c = cmp.Or(c, new(Channel))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.response) == 0 {
		return 0, errors.New("goattestation: no response is left to read: write a command first")
	}
	n := copy(b, c.response)
	c.response = c.response[n:]
	return n, nil
}

// Close ends the use of this Channel and leaves the transport open, which is the caller's to
// close. It never fails.
func (c *Channel) Close() error {
	c = cmp.Or(c, new(Channel))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.response = true, nil
	return nil
}

// MeasurementLog returns the firmware's event log, as attest.TPM.MeasurementLog and AttestPlatform
// ask for it.
func (c *Channel) MeasurementLog() ([]byte, error) {
	if c == nil || c.eventLog == nil {
		return nil, errors.New("goattestation: no event log: NewChannel was given no function that reads it")
	}
	return c.eventLog(context.Background())
}

// Transport returns a go-tpm transport over go-attestation's own kind of channel, shared as by
// [tpmkey.Share]: for package tpm, and for a [NewChannel] that go-attestation gets in place of
// channel, which then has no other user. Closing channel remains the caller's, after both.
func Transport(channel goattest.CommandChannelTPM20) transport.TPM {
	return tpmkey.Share(transport.FromReadWriteCloser(channel))
}

// EventLog returns a function that reads the firmware's event log by way of client, for
// tpm.ProverOptions.EventLog. The bytes are the firmware's: package eventlog replays them against
// a verified quote, as go-attestation's ParseEventLog and EventLog.Verify do. client must not be
// in use by another goroutine.
func EventLog(client *goattest.TPM) func(ctx context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		if client == nil {
			return nil, errors.New("goattestation: no TPM to read the event log from")
		}
		return client.MeasurementLog()
	}
}
