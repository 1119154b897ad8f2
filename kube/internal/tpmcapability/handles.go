package tpmcapability

import (
	"errors"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// handles lists the handles of first's type from there on, at most n.
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

// Has asks whether a persistent key exists.
func Has(tpm transport.TPM, key tpm2.TPMHandle) (bool, error) {
	list, err := handles(tpm, key, 1)
	return len(list) == 1 && list[0] == key, err
}

// NoRoom reports whether err says that a TPM holds as many objects or sessions as it can (TPM
// 2.0 Library, Part 2, 6.6.3).
func NoRoom(err error) bool {
	full := []tpm2.TPMRC{tpm2.TPMRCObjectMemory, tpm2.TPMRCSessionMemory, tpm2.TPMRCObjectHandles, tpm2.TPMRCSessionHandles}
	return slices.ContainsFunc(full, func(rc tpm2.TPMRC) bool { return errors.Is(err, rc) })
}

// FlushAll flushes every loaded object and session, and says how many there were.
func FlushAll(tpm transport.TPM) (flushed int, err error) {
	const most = 64                                                  // a TPM holds a handful
	for _, first := range []tpm2.TPMHandle{0x80000000, 0x02000000} { // transient objects, loaded sessions
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
