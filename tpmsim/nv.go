package tpmsim

import (
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// maxNVSize is the greatest size of an NV index in bytes that both emulators allow.
const maxNVSize = 2048

// nvAttributes are those of an index that the maker of a machine provisions: written
// and deleted by the platform alone, readable by anybody with the index's own empty
// password, and kept by TPM2_Clear.
var nvAttributes = tpm2.TPMANV{
	PPWrite:        true,
	PPRead:         true,
	OwnerRead:      true,
	AuthRead:       true,
	NoDA:           true,
	PlatformCreate: true,
	NT:             tpm2.TPMNTOrdinary,
}

// WriteNV makes an NV index with exactly this content, 1 to 2048 bytes, in place of
// one that was there before (which must have been made by WriteNV or by the
// provisioning). Anybody can read it with the index as the authorisation handle and
// an empty password. It is for tests of programs that read NV.
func (t *TPM) WriteNV(index tpm2.TPMHandle, data []byte) error {
	if len(data) == 0 || len(data) > maxNVSize {
		return fmt.Errorf("%w: %d bytes for NV index %#x, want 1 to %d", ErrOptions, len(data), uint32(index), maxNVSize)
	}
	if err := t.DeleteNV(index); err != nil {
		return err
	}
	define := tpm2.NVDefineSpace{
		AuthHandle: platform(),
		PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{
			NVIndex:    index,
			NameAlg:    tpm2.TPMAlgSHA256,
			Attributes: nvAttributes,
			DataSize:   uint16(len(data)),
		}),
	}
	if _, err := define.Execute(t); err != nil {
		return fmt.Errorf("tpmsim: define NV index %#x: %w", uint32(index), err)
	}
	name, err := nvName(t, index)
	if err != nil {
		return err
	}
	for off := 0; off < len(data); off += t.nvSize {
		chunk := data[off:min(off+t.nvSize, len(data))]
		write := tpm2.NVWrite{
			AuthHandle: platform(),
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: *name},
			Data:       tpm2.TPM2BMaxNVBuffer{Buffer: chunk},
			Offset:     uint16(off),
		}
		if _, err := write.Execute(t); err != nil {
			return fmt.Errorf("tpmsim: write NV index %#x: %w", uint32(index), err)
		}
		if off == 0 { // the first write sets TPMA_NV_WRITTEN, which is part of the Name
			if name, err = nvName(t, index); err != nil {
				return err
			}
		}
	}
	return nil
}

// DeleteNV removes an NV index that WriteNV or the provisioning made. An index that
// does not exist is no error.
func (t *TPM) DeleteNV(index tpm2.TPMHandle) error {
	name, err := nvName(t, index)
	if errors.Is(err, tpm2.TPMRCHandle) {
		return nil
	}
	if err != nil {
		return err
	}
	undefine := tpm2.NVUndefineSpace{
		AuthHandle: platform(),
		NVIndex:    tpm2.NamedHandle{Handle: index, Name: *name},
	}
	if _, err := undefine.Execute(t); err != nil {
		return fmt.Errorf("tpmsim: delete NV index %#x: %w", uint32(index), err)
	}
	return nil
}

// platform is the platform hierarchy with its empty password.
func platform() tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)}
}

func nvName(tpm transport.TPM, index tpm2.TPMHandle) (*tpm2.TPM2BName, error) {
	rsp, err := tpm2.NVReadPublic{NVIndex: index}.Execute(tpm)
	if err != nil {
		return nil, fmt.Errorf("tpmsim: read the public area of NV index %#x: %w", uint32(index), err)
	}
	return &rsp.NVName, nil
}

// nvBufferMax asks how many bytes one TPM2_NV_Write takes.
func nvBufferMax(tpm transport.TPM) (int, error) {
	rsp, err := tpm2.GetCapability{
		Capability:    tpm2.TPMCapTPMProperties,
		Property:      uint32(tpm2.TPMPTNVBufferMax),
		PropertyCount: 1,
	}.Execute(tpm)
	if err != nil {
		return 0, fmt.Errorf("tpmsim: TPM_PT_NV_BUFFER_MAX: %w", err)
	}
	props, err := rsp.CapabilityData.Data.TPMProperties()
	if err != nil {
		return 0, fmt.Errorf("tpmsim: TPM_PT_NV_BUFFER_MAX: %w", err)
	}
	if len(props.TPMProperty) != 1 || props.TPMProperty[0].Property != tpm2.TPMPTNVBufferMax || props.TPMProperty[0].Value == 0 {
		return 0, errors.New("tpmsim: the TPM does not state TPM_PT_NV_BUFFER_MAX")
	}
	return int(min(props.TPMProperty[0].Value, maxNVSize)), nil
}
