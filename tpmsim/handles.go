package tpmsim

import (
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// LoadedHandles lists the content of a TPM's volatile memory: transient objects,
// loaded sessions, and sessions saved by TPM2_ContextSave, which count against the
// TPM's limit as well; at most 64 of each. It uses TPM2_GetCapability (TPM 2.0 Part 3,
// section 30.2). A program that cleans up after itself does not change the list.
func LoadedHandles(tpm transport.TPM) ([]tpm2.TPMHandle, error) {
	var handles []tpm2.TPMHandle
	for _, t := range []tpm2.TPMHT{tpm2.TPMHTTransient, tpm2.TPMHTLoadedSession, tpm2.TPMHTSavedSession} {
		var list *tpm2.TPMLHandle
		rsp, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: uint32(t) << 24, PropertyCount: 64}.Execute(tpm)
		if err == nil {
			list, err = rsp.CapabilityData.Data.Handles()
		}
		if err != nil {
			return nil, fmt.Errorf("tpmsim: list handles of type %#x: %w", uint8(t), err)
		}
		handles = append(handles, list.Handle...)
	}
	return handles, nil
}
