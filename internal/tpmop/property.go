package tpmop

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// TPMProperty reads one of the TPM's properties (Part 2, 6.13). known is false if the TPM does
// not have it: it then answers with the next one that it has, with none, or with TPM_RC_VALUE.
func TPMProperty(ctx context.Context, h *Handles, property tpm2.TPMPT) (value uint32, known bool, err error) {
	rsp, err := Run(ctx, h.TPM, tpm2.GetCapability{
		Capability: tpm2.TPMCapTPMProperties, Property: uint32(property), PropertyCount: 1,
	}, "TPM2_GetCapability of property 0x%x", uint32(property))
	if errors.Is(err, tpm2.TPMRCValue) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	list, err := rsp.CapabilityData.Data.TPMProperties()
	if err != nil {
		return 0, false, fmt.Errorf("TPM2_GetCapability of property 0x%x: %w", uint32(property), err)
	}
	for _, p := range list.TPMProperty {
		if p.Property == property {
			return p.Value, true, nil
		}
	}
	return 0, false, nil
}
