package tpmcapability

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// handles lists at most n handles of first's type, from first on.
func handles(tpm transport.TPM, first tpm2.TPMHandle, n uint32) ([]tpm2.TPMHandle, error) {
	answer, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: uint32(first), PropertyCount: n}.Execute(tpm)
	if err != nil {
		return nil, err
	}
	list, err := answer.CapabilityData.Data.Handles()
	if err != nil {
		return nil, err
	}
	return list.Handle, nil
}

// Has reports whether a persistent key or an NV index exists: false if the TPM does not list handles.
func Has(tpm transport.TPM, handle tpm2.TPMHandle) (bool, error) {
	list, err := handles(tpm, handle, 1)
	if errors.As(err, new(tpm2.TPMFmt1Error)) {
		return false, nil
	}
	return len(list) == 1 && list[0] == handle, err
}

// NoRoom reports whether a command failed because a TPM has no room for another object or session (TPM
// 2.0 Library, Part 2, 6.6.3).
func NoRoom(err error) bool {
	return isOneOf(err, tpm2.TPMRCObjectMemory, tpm2.TPMRCSessionMemory, tpm2.TPMRCMemory, tpm2.TPMRCObjectHandles) || noSession(err)
}

// noSession reports whether there are too many sessions, saved ones included.
func noSession(err error) bool { return isOneOf(err, tpm2.TPMRCSessionHandles, tpm2.TPMRCContextGap) }

func isOneOf(err error, codes ...tpm2.TPMRC) bool {
	return slices.ContainsFunc(codes, func(rc tpm2.TPMRC) bool { return errors.Is(err, rc) })
}

// WithRoom runs do in the TPM at a path. If the TPM had no room, it flushes all loaded objects and
// sessions, and runs do again. It does so behind a socket only: there, no kernel cleans up after a killed
// program, and this process is the only user.
func WithRoom(ctx context.Context, path string, tpm transport.TPM, do func() error) error {
	err := do()
	if !NoRoom(err) || ctx.Err() != nil {
		return err
	}
	if info, missing := os.Stat(path); missing != nil || info.Mode()&fs.ModeSocket == 0 {
		return err
	}
	if flushed, flushing := flushAll(tpm, err); flushed == 0 || flushing != nil {
		return errors.Join(err, flushing)
	}
	return do()
}

// flushAll flushes every loaded object and session, and the saved sessions if full says that there are
// too many. It returns the number of flushed handles.
func flushAll(tpm transport.TPM, full error) (flushed int, err error) {
	const most = 64                                   // a TPM holds a handful
	kinds := []tpm2.TPMHandle{0x80000000, 0x02000000} // transient objects, loaded sessions
	if noSession(full) {
		kinds = append(kinds, 0x03000000)
	}
	for _, first := range kinds {
		list, err := handles(tpm, first, most)
		if err != nil {
			return flushed, err
		}
		for _, handle := range list {
			if _, err := (tpm2.FlushContext{FlushHandle: handle}).Execute(tpm); err != nil {
				return flushed, err
			}
			flushed++
		}
	}
	return flushed, nil
}
