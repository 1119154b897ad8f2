package tpmop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
)

// Handles is what one operation has loaded into a TPM and must flush.
type Handles struct {
	TPM    transport.TPM
	Open   []OpenHandle
	shared *Shared
	reset  bool // a handle was given out again: all loaded objects are gone
}

// OpenHandle is a loaded object, or a session, which has no Name.
type OpenHandle struct {
	Handle tpm2.TPMHandle
	Name   []byte
}

// Of reports whether the operation has the turn of that TPM.
func (h *Handles) Of(s *Shared) bool { return h.shared == s }

// Keep records a loaded object, to be flushed by Flush or FlushAll. If the TPM was reset in the
// meantime, the handle may be one that is kept: then two keys would be taken for one, and the
// operation fails.
func (h *Handles) Keep(handle tpm2.TPMHandle, name []byte) {
	h.reset = h.reset || h.keeps(handle)
	h.Open = append(h.Open, OpenHandle{handle, name})
}

// Drop forgets a handle that someone else owns from now on.
func (h *Handles) Drop(handle tpm2.TPMHandle) {
	h.Open = slices.DeleteFunc(h.Open, func(o OpenHandle) bool { return o.Handle == handle })
}

// Flush flushes a kept handle, and leaves others alone: those of persistent keys, and of keys that a
// tpmkey.Key holds. If that fails, the handle stays kept. There is no context: objects are flushed,
// however late it is.
func (h *Handles) Flush(handle tpm2.TPMHandle) error {
	if !h.keeps(handle) {
		return nil
	}
	if err := FlushContext(during(context.Background(), h.TPM), handle); err != nil {
		return err
	}
	h.Drop(handle)
	return nil
}

// FlushAll flushes all kept handles, newest first, continuing past failures.
func (h *Handles) FlushAll() error {
	var errs []error
	for _, open := range slices.Backward(slices.Clone(h.Open)) {
		errs = append(errs, h.Flush(open.Handle))
	}
	return errors.Join(errs...)
}

// retry flushes the objects that an earlier operation had to leave, and returns those it still
// cannot flush. The earlier flush may have worked and only its response been lost, and the number
// may since have been given to another object, so an object is flushed only if its Name is still
// that of the one that we loaded.
func (h *Handles) retry(left []OpenHandle) []OpenHandle {
	return slices.DeleteFunc(left, func(o OpenHandle) bool {
		if o.Name != nil {
			pub, err := tpm2.ReadPublic{ObjectHandle: o.Handle}.Execute(h.TPM)
			if err != nil {
				return isUnknownHandle(err)
			}
			if !bytes.Equal(pub.Name.Buffer, o.Name) {
				return true
			}
		}
		return FlushContext(h.TPM, o.Handle) == nil
	})
}

// FlushContext also succeeds if the TPM no longer has the handle.
func FlushContext(tpm transport.TPM, handle tpm2.TPMHandle) error {
	_, err := tpm2.FlushContext{FlushHandle: handle}.Execute(tpm)
	if err != nil && !isUnknownHandle(err) {
		return fmt.Errorf("TPM2_FlushContext of 0x%08x: %w", uint32(handle), err)
	}
	return nil
}

// isUnknownHandle reports whether the TPM answered that it has no such object or session.
// (Part 3, 28.4: TPM_RC_HANDLE; Part 2, 6.6.3: TPM_RC_REFERENCE_H0 from other commands.)
func isUnknownHandle(err error) bool {
	return errors.Is(err, tpm2.TPMRCHandle) || errors.Is(err, tpm2.TPMRCReferenceH0)
}

// Command is one of go-tpm's typed commands, seen from the caller's side.
type Command[R any] interface {
	Execute(t transport.TPM, sessions ...tpm2.Session) (*R, error)
}

// Run executes one command unless ctx is over, and sends it again after a pause while the TPM
// asks for that. what names the command and its purpose; the TPM's response code is wrapped
// (errors.As to tpm2.TPMRC), and so is [refusal.ErrRetry] if a later call may succeed.
func Run[R any](ctx context.Context, tpm transport.TPM, cmd Command[R], what string, args ...any) (*R, error) {
	what = fmt.Sprintf(what, args...)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("before %s: %w", what, err)
	}
	rsp, err := cmd.Execute(during(ctx, tpm))
	if err != nil {
		return nil, explain(ctx, fmt.Errorf("%s: %w", what, err))
	}
	return rsp, nil
}

// Load is Run for a command that loads an object. If the connection fails, the TPM may have
// executed it and only the response with the handle been lost. So Load looks for objects that
// isOurs accepts among the loaded ones, and keeps them to be flushed with the rest.
func Load[R any](ctx context.Context, h *Handles, isOurs func(*statement.Public) bool, cmd Command[R], what string, args ...any) (*R, error) {
	late := ctx.Err() != nil
	rsp, err := Run(ctx, h.TPM, cmd, what, args...)
	if err != nil && !late && !IsAnswer(err) {
		h.keepLost(isOurs)
	}
	return rsp, err
}

// IsAnswer reports whether an error is the TPM's answer, and not that of the way to it.
func IsAnswer(err error) bool {
	_, ok := errors.AsType[tpm2.TPMRC](err)
	return ok
}

// keepLost keeps every loaded object that isOurs accepts and is not kept yet. It gives up if the
// TPM does not list its handles.
func (h *Handles) keepLost(isOurs func(*statement.Public) bool) {
	loaded, _, _ := h.List(context.Background(), tpm2.TPMHandle(tpm2.TPMHTTransient)<<24, 64)
	for _, handle := range loaded {
		if h.keeps(handle) {
			continue
		}
		if k, err := ReadPublic(context.Background(), h, handle); err == nil && isOurs(k.Public) {
			h.Keep(handle, k.Name)
		}
	}
}

func (h *Handles) keeps(handle tpm2.TPMHandle) bool {
	return slices.ContainsFunc(h.Open, func(o OpenHandle) bool { return o.Handle == handle })
}

// List lists handles of the TPM, ascending from first, at most n and of first's type; more
// says that there may be others (Part 3, 30.2: moreData).
func (h *Handles) List(ctx context.Context, first tpm2.TPMHandle, n uint32) (list []tpm2.TPMHandle, more bool, err error) {
	rsp, err := Run(ctx, h.TPM, tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: uint32(first), PropertyCount: n},
		"TPM2_GetCapability of the handles from 0x%08x", uint32(first))
	if err != nil {
		return nil, false, err
	}
	handles, err := rsp.CapabilityData.Data.Handles()
	if err != nil {
		return nil, false, fmt.Errorf("TPM2_GetCapability of the handles from 0x%08x: %w", uint32(first), err)
	}
	return handles.Handle, rsp.MoreData, nil
}

// WithPassword is a handle and the password for it, sent in the clear. It is for the empty
// password, which is nil; see Authorize for others. Names count only in HMAC sessions, so any
// name will do for an object.
func WithPassword(handle tpm2.TPMHandle, name, password []byte) tpm2.AuthHandle {
	return WithSession(handle, name, tpm2.PasswordAuth(password))
}

// WithSession is a handle authorized by a session.
func WithSession(handle tpm2.TPMHandle, name []byte, session tpm2.Session) tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: handle, Name: tpm2.TPM2BName{Buffer: name}, Auth: session}
}

// Shared lets several keys, a Prover and the caller's own code use one TPM from many
// goroutines. A transport sends one command at a time and a TPM has as few as three slots for
// loaded objects, so each operation takes the TPM for all of its commands, from the first load
// to the last flush, and the next one waits. Every function of attest/tpm and
// attest/tpm/tpmkey that takes a transport recognizes a Shared; given anything else, it makes
// a Shared of its own, which shares nothing. So wherever one TPM serves two users:
//
//	tpm := Share(transport)
//
// and give tpm to both.
type Shared struct {
	tpm  transport.TPM
	turn chan struct{} // holds one value while the TPM is in use
	Left []OpenHandle  // could not be flushed; guarded by turn

	SessionKey *sessionKey // nil until the first session; guarded by turn
}

// Share wraps a transport. A Shared is returned unchanged. The transport remains the caller's
// to close, after everything that uses it.
func Share(tpm transport.TPM) *Shared {
	if s, ok := tpm.(*Shared); ok {
		return s
	}
	return &Shared{tpm: tpm, turn: make(chan struct{}, 1)}
}

// Send sends one command when the TPM is free, and makes Shared a transport.TPM. It waits for
// a running operation, at worst a key generation, and sends the command again, after a pause,
// while the TPM asks for that.
func (s *Shared) Send(command []byte) ([]byte, error) {
	if s == nil || s.tpm == nil {
		return nil, errors.New("no TPM")
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return (&patient{s.tpm, context.Background()}).Send(command)
}

// Do runs f with exclusive use of the TPM, and then flushes everything that f loaded, whatever
// f returned and whether or not ctx is over: an error from flushing is joined to f's. What
// could not be flushed is tried again at the next Do. f must use h.TPM, never s, which would
// wait for itself.
func (s *Shared) Do(ctx context.Context, f func(h *Handles) error) (err error) {
	if s == nil || s.tpm == nil || ctx == nil {
		return errors.New("no TPM, or no context")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the TPM: %w", ctx.Err())
	}
	defer func() { <-s.turn }()

	h := &Handles{TPM: &patient{s.tpm, ctx}, shared: s}
	s.Left = h.retry(s.Left)
	defer func() {
		if h.reset {
			err = errors.Join(refusal.Retry(errReset), err)
		}
		err = errors.Join(err, h.FlushAll())
		s.Left = append(s.Left, h.Open...)
	}()
	return f(h)
}

var errReset = errors.New("the TPM was reset while it was used: try again")

// FlushLeft tries once more to flush what earlier operations had to leave loaded, and fails if
// something is left. It is for the Close of what uses a TPM.
func (s *Shared) FlushLeft(ctx context.Context) error {
	return s.Do(ctx, func(h *Handles) error {
		if n := len(s.Left); n != 0 {
			return fmt.Errorf("%d handles could not be flushed, the first is 0x%08x", n, uint32(s.Left[0].Handle))
		}
		return nil
	})
}
