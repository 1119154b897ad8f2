package tpmop

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// TPMProperty reads one of the TPM's properties (Part 2, 6.13). A TPM that does not have it
// answers with the next one, or with TPM_RC_VALUE: then it is 0 and not known.
func TPMProperty(ctx context.Context, h *Handles, property tpm2.TPMPT) (value uint32, known bool, err error) {
	what := fmt.Sprintf("TPM2_GetCapability of property 0x%x", uint32(property))
	rsp, err := Run(ctx, h.TPM, tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(property), PropertyCount: 1}, what)
	if errors.Is(err, tpm2.TPMRCValue) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	list, err := rsp.CapabilityData.Data.TPMProperties()
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", what, err)
	}
	if len(list.TPMProperty) == 0 || list.TPMProperty[0].Property != property {
		return 0, false, nil
	}
	return list.TPMProperty[0].Value, true, nil
}

// endorsementAuthSet is in TPM_PT_PERMANENT (Part 2, 8.6, TPMA_PERMANENT).
const endorsementAuthSet = 1 << 1

// HasEndorsementPassword asks the TPM whether its endorsement hierarchy has a password. known is
// false if the TPM does not say.
func HasEndorsementPassword(ctx context.Context, h *Handles) (has, known bool, err error) {
	permanent, known, err := TPMProperty(ctx, h, tpm2.TPMPTPermanent)
	return permanent&endorsementAuthSet != 0, known, err
}
