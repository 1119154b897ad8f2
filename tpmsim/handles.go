package tpmsim

import (
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// LoadedHandles lists what is left in a TPM's volatile memory: transient objects,
// loaded sessions, and sessions saved by TPM2_ContextSave, which count against the
// TPM's limit as well. It asks with TPM2_GetCapability (TPM 2.0 Part 3, section
// 30.2). A program that cleans up after itself leaves what it found.
func LoadedHandles(tpm transport.TPM) ([]tpm2.TPMHandle, error) {
	var handles []tpm2.TPMHandle
	for _, t := range []tpm2.TPMHT{tpm2.TPMHTTransient, tpm2.TPMHTLoadedSession, tpm2.TPMHTSavedSession} {
		h, err := handlesOf(tpm, t)
		if err != nil {
			return nil, err
		}
		handles = append(handles, h...)
	}
	return handles, nil
}

// handlesOf lists the handles of one type.
func handlesOf(tpm transport.TPM, t tpm2.TPMHT) ([]tpm2.TPMHandle, error) {
	const page = 64
	var handles []tpm2.TPMHandle
	next := uint32(t) << 24
	for {
		rsp, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: next, PropertyCount: page}.Execute(tpm)
		if err != nil {
			return nil, fmt.Errorf("tpmsim: list handles of type %#x: %w", uint8(t), err)
		}
		list, err := rsp.CapabilityData.Data.Handles()
		if err != nil {
			return nil, fmt.Errorf("tpmsim: list handles of type %#x: %w", uint8(t), err)
		}
		handles = append(handles, list.Handle...)
		if !rsp.MoreData || len(list.Handle) == 0 {
			return handles, nil
		}
		next = uint32(list.Handle[len(list.Handle)-1]) + 1
	}
}
