package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// handles is what one operation has loaded into a TPM and must flush.
type handles struct {
	tpm    transport.TPM
	open   []openHandle
	shared *SharedTPM
}

// openHandle is a loaded object, or a session, which has no Name.
type openHandle struct {
	handle tpm2.TPMHandle
	name   []byte
}

// keep notes what was loaded, to be flushed by flush or flushAll.
func (h *handles) keep(handle tpm2.TPMHandle, name []byte) {
	h.open = append(h.open, openHandle{handle, name})
}

// drop forgets a handle that somebody else owns from now on.
func (h *handles) drop(handle tpm2.TPMHandle) {
	h.open = slices.DeleteFunc(h.open, func(o openHandle) bool { return o.handle == handle })
}

// flush flushes one kept handle. Where that fails it stays kept. There is no
// context: what was loaded is flushed, however late it is.
func (h *handles) flush(handle tpm2.TPMHandle) error {
	if err := flushContext(h.tpm, handle); err != nil {
		return err
	}
	h.drop(handle)
	return nil
}

// flushAll flushes what is kept, newest first, past failures.
func (h *handles) flushAll() error {
	var errs []error
	for i := len(h.open) - 1; i >= 0; i-- {
		errs = append(errs, h.flush(h.open[i].handle))
	}
	return errors.Join(errs...)
}

// retry flushes what an earlier operation had to leave, and returns what still
// cannot be. The earlier flush may have worked and only its response been lost,
// and the number been given to another object since: so an object is flushed
// only if its Name is still the one that we loaded.
func (h *handles) retry(left []openHandle) []openHandle {
	return slices.DeleteFunc(left, func(o openHandle) bool {
		if o.name != nil {
			pub, err := tpm2.ReadPublic{ObjectHandle: o.handle}.Execute(h.tpm)
			if err != nil {
				return isUnknownHandle(err)
			}
			if !bytes.Equal(pub.Name.Buffer, o.name) {
				return true
			}
		}
		return flushContext(h.tpm, o.handle) == nil
	})
}

// flushContext succeeds too where the TPM no longer has the handle.
func flushContext(tpm transport.TPM, handle tpm2.TPMHandle) error {
	_, err := tpm2.FlushContext{FlushHandle: handle}.Execute(tpm)
	if err != nil && !isUnknownHandle(err) {
		return fmt.Errorf("TPM2_FlushContext of 0x%08x: %w", uint32(handle), err)
	}
	return nil
}

// isUnknownHandle: the TPM answered, and has no such object or session. (Part 3,
// 28.4: TPM_RC_HANDLE; Part 2, 6.6.3: TPM_RC_REFERENCE_H0 from other commands.)
func isUnknownHandle(err error) bool {
	return errors.Is(err, tpm2.TPMRCHandle) || errors.Is(err, tpm2.TPMRCReferenceH0)
}

// command is go-tpm's typed commands, seen from the caller's side.
type command[R any] interface {
	Execute(t transport.TPM, sessions ...tpm2.Session) (*R, error)
}

// run executes one command unless ctx is over. what names the command and what
// it is for; the TPM's response code is wrapped (errors.As to tpm2.TPMRC).
func run[R any](ctx context.Context, tpm transport.TPM, cmd command[R], what string, args ...any) (*R, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("before %s: %w", fmt.Sprintf(what, args...), err)
	}
	rsp, err := cmd.Execute(tpm)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
	}
	return rsp, nil
}

// load is run for a command that loads an object. If the connection fails, the TPM
// may have done it and only the response with the handle be lost: so what isOurs
// is looked for among the loaded objects, and kept to be flushed with the rest.
func load[R any](ctx context.Context, h *handles, isOurs func(*Public) bool, cmd command[R], what string, args ...any) (*R, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("before %s: %w", fmt.Sprintf(what, args...), err)
	}
	rsp, err := run(context.WithoutCancel(ctx), h.tpm, cmd, what, args...)
	if answer := tpm2.TPMRC(0); err != nil && !errors.As(err, &answer) {
		h.keepLost(isOurs)
	}
	return rsp, err
}

// keepLost keeps every loaded object that isOurs and is not kept yet. If the TPM
// cannot be asked, there is nothing to be done about what it has loaded.
func (h *handles) keepLost(isOurs func(*Public) bool) {
	rsp, err := tpm2.GetCapability{
		Capability: tpm2.TPMCapHandles, Property: uint32(tpm2.TPMHTTransient) << 24, PropertyCount: 64,
	}.Execute(h.tpm)
	if err != nil {
		return
	}
	list, err := rsp.CapabilityData.Data.Handles()
	if err != nil {
		return
	}
	for _, handle := range list.Handle {
		if slices.ContainsFunc(h.open, func(o openHandle) bool { return o.handle == handle }) {
			continue
		}
		if k, err := readPublic(context.Background(), h, handle); err == nil && isOurs(k.public) {
			h.keep(handle, k.name)
		}
	}
}

// withPassword is a handle and the password for it, sent as it is: for the empty
// one, which is nil. See authorize for others. Names count in HMAC sessions only, so
// any will do for an object.
func withPassword(handle tpm2.TPMHandle, name, password []byte) tpm2.AuthHandle {
	return tpm2.AuthHandle{
		Handle: handle,
		Name:   tpm2.TPM2BName{Buffer: name},
		Auth:   tpm2.PasswordAuth(password),
	}
}
