package tpmop

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// MaxPrivateSize bounds the encrypted private part of a key, in bytes.
const MaxPrivateSize = 4 << 10

// CheckStorageParent refuses a parent other than the owner hierarchy, which stands for its
// StorageRootKey, and a persistent handle.
func CheckStorageParent(handle tpm2.TPMHandle) error {
	if handle != tpm2.TPMRHOwner && CheckPersistent(handle) != nil {
		return fmt.Errorf("parent: got 0x%08x, want 0x%08x, the owner hierarchy, or a persistent handle", uint32(handle), uint32(tpm2.TPMRHOwner))
	}
	return nil
}

// StorageParent makes, or finds, the restricted decryption key that the private part of a key is
// encrypted to.
func StorageParent(ctx context.Context, h *Handles, handle tpm2.TPMHandle, ownerPassword []byte) (parent *LoadedKey, err error) {
	if handle == tpm2.TPMRHOwner {
		parent, err = CreatePrimary(ctx, h, tpm2.TPMRHOwner, ownerPassword, tpm2.Marshal(StorageRootKey()))
		if errors.Is(err, tpm2.TPMRCCurve) {
			err = fmt.Errorf("the TPM lacks P-256, it needs a persistent Parent: %w", err)
		}
	} else if err = CheckPersistent(handle); err == nil {
		parent, err = ReadPublic(ctx, h, handle)
	}
	if err != nil {
		return nil, fmt.Errorf("storage parent: %w", err)
	}
	return parent, nil
}

// LoadUnder loads a key by its public area and its encrypted private part, and makes room by
// flushing a parent that was made for it.
func LoadUnder(ctx context.Context, h *Handles, parent *LoadedKey, public, private []byte) (*LoadedKey, error) {
	isOurs := func(p *statement.Public) bool { return bytes.Equal(p.Raw, public) }
	rsp, err := Load(ctx, h, isOurs, tpm2.Load{
		ParentHandle: WithPassword(parent.Handle, parent.Name, nil),
		InPrivate:    tpm2.TPM2BPrivate{Buffer: private},
		InPublic:     tpm2.BytesAs2B[tpm2.TPMTPublic](public),
	}, "TPM2_Load under 0x%08x", uint32(parent.Handle))
	if err != nil {
		return nil, err
	}
	h.Keep(rsp.ObjectHandle, rsp.Name.Buffer)
	if err := h.Flush(parent.Handle); err != nil {
		return nil, err
	}
	return NewLoadedKey(rsp.ObjectHandle, rsp.Name.Buffer, public)
}
