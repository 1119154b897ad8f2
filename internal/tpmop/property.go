package tpmop

import (
	"context"
	"errors"

	"github.com/google/go-tpm/tpm2"
)

// propertyOrZero is TPMProperty, and 0 if the TPM does not have it.
func propertyOrZero(ctx context.Context, h *Handles, property tpm2.TPMPT) (uint32, error) {
	value, err := TPMProperty(ctx, h, property)
	if errors.Is(err, errNoProperty) {
		return 0, nil
	}
	return value, err
}

// endorsementAuthSet is in TPM_PT_PERMANENT (Part 2, 8.6, TPMA_PERMANENT).
const endorsementAuthSet = 1 << 1

// HasEndorsementPassword asks the TPM whether its endorsement hierarchy has a password. known is
// false if the TPM does not say.
func HasEndorsementPassword(ctx context.Context, h *Handles) (has, known bool, err error) {
	permanent, err := TPMProperty(ctx, h, tpm2.TPMPTPermanent)
	if errors.Is(err, errNoProperty) {
		return false, false, nil
	}
	return permanent&endorsementAuthSet != 0, err == nil, err
}
