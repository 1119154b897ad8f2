package tpmsim

import (
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// maxNVSize is the maximum size of an NV index in bytes that both emulators allow.
	maxNVSize = 2048
	// maxNVWrite is how many bytes both accept in one write (TPM_PT_NV_BUFFER_MAX).
	maxNVWrite = 1024
)

// WriteNV makes an NV index with exactly this content, 1 to 2048 bytes. It replaces an
// existing index, which must have been made by WriteNV or by the provisioning. Anyone can
// read it with the index as the authorisation handle and an empty password. It is meant for
// tests of programs that read NV.
func (t *TPM) WriteNV(index tpm2.TPMHandle, data []byte) error {
	if err := t.DeleteNV(index); err != nil {
		return err
	}
	return t.defineNV(index, data)
}

// defineNV makes a new index as a machine's manufacturer does: written and deleted only by
// the platform, readable by anyone with the index's own empty password, and kept by
// TPM2_Clear.
func (t *TPM) defineNV(index tpm2.TPMHandle, data []byte) error {
	if len(data) == 0 || len(data) > maxNVSize {
		return fmt.Errorf("tpmsim: %w: %d bytes for NV index %#x, want 1 to %d", refusal.CheckConfig, len(data), uint32(index), maxNVSize)
	}
	_, err := tpm2.NVDefineSpace{
		AuthHandle: platform(),
		PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{
			NVIndex: index,
			NameAlg: tpm2.TPMAlgSHA256,
			Attributes: tpm2.TPMANV{
				PPWrite: true, PPRead: true, OwnerRead: true, AuthRead: true,
				NoDA: true, PlatformCreate: true, NT: tpm2.TPMNTOrdinary,
			},
			DataSize: uint16(len(data)),
		}),
	}.Execute(t)
	if errors.Is(err, tpm2.TPMRCNVDefined) {
		return fmt.Errorf("tpmsim: %w: NV index %#x twice", refusal.CheckConfig, uint32(index))
	}
	for off := 0; err == nil && off < len(data); off += maxNVWrite {
		var at tpm2.NamedHandle // the first write sets TPMA_NV_WRITTEN, which is part of the Name
		if at, err = t.named(index); err == nil {
			_, err = tpm2.NVWrite{
				AuthHandle: platform(),
				NVIndex:    at,
				Data:       tpm2.TPM2BMaxNVBuffer{Buffer: data[off:min(off+maxNVWrite, len(data))]},
				Offset:     uint16(off),
			}.Execute(t)
		}
	}
	if err != nil {
		return fmt.Errorf("tpmsim: write NV index %#x: %w", uint32(index), err)
	}
	return nil
}

// DeleteNV removes an NV index that WriteNV or the provisioning made. It is not an error if
// the index does not exist.
func (t *TPM) DeleteNV(index tpm2.TPMHandle) error {
	at, err := t.named(index)
	if errors.Is(err, tpm2.TPMRCHandle) {
		return nil
	}
	if err == nil {
		_, err = tpm2.NVUndefineSpace{AuthHandle: platform(), NVIndex: at}.Execute(t)
	}
	if err != nil {
		return fmt.Errorf("tpmsim: delete NV index %#x: %w", uint32(index), err)
	}
	return nil
}

// platform returns the platform hierarchy with its empty password.
func platform() tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)}
}

func (t *TPM) named(index tpm2.TPMHandle) (tpm2.NamedHandle, error) {
	rsp, err := tpm2.NVReadPublic{NVIndex: index}.Execute(t)
	if err != nil {
		return tpm2.NamedHandle{}, err
	}
	return tpm2.NamedHandle{Handle: index, Name: rsp.NVName}, nil
}
