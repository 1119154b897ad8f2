package tpmop

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// ErrNVIndexNotFound says that the TPM has no such NV index: a requested template, nonce or
// certificate is not provisioned. The error that wraps it names the index.
var ErrNVIndexNotFound = errors.New("no such NV index")

// MaxNVChunk bounds one read, whatever the TPM says about itself: 2048 bytes is the largest
// buffer of the TPMs in use.
const MaxNVChunk = 2048

// ReadNV reads a whole NV index, with the index itself and its empty password as the authority
// (TPMA_NV_AUTHREAD): a node does not have the owner's password. An index has at most 65535
// bytes (Part 2, 13.6, TPMS_NV_PUBLIC).
func ReadNV(ctx context.Context, h *Handles, index tpm2.TPMHandle) ([]byte, error) {
	area, name, err := ReadNVPublic(ctx, h, index)
	if err != nil {
		return nil, err
	}
	chunk, err := NVChunk(ctx, h)
	if err != nil {
		return nil, err
	}

	size := int(area.DataSize)
	data := make([]byte, 0, size)
	for len(data) < size {
		read := tpm2.NVRead{
			AuthHandle: WithPassword(index, name.Buffer, nil),
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: name},
			Size:       uint16(min(chunk, size-len(data))),
			Offset:     uint16(len(data)),
		}
		rsp, err := Run(ctx, h.TPM, read, "TPM2_NV_Read of index 0x%08x at offset %d", uint32(index), len(data))
		if err != nil {
			return nil, err
		}
		if len(rsp.Data.Buffer) != int(read.Size) {
			return nil, fmt.Errorf("TPM2_NV_Read of index 0x%08x at offset %d: got %d bytes, want %d",
				uint32(index), read.Offset, len(rsp.Data.Buffer), read.Size)
		}
		data = append(data, rsp.Data.Buffer...)
	}
	return data, nil
}

// ReadNVPublic reads the public area and the Name of an NV index.
func ReadNVPublic(ctx context.Context, h *Handles, index tpm2.TPMHandle) (*tpm2.TPMSNVPublic, tpm2.TPM2BName, error) {
	if index>>24 != 0x01 {
		return nil, tpm2.TPM2BName{}, fmt.Errorf("0x%08x is not an NV index: want 0x01000000 to 0x01ffffff", uint32(index))
	}
	rsp, err := Run(ctx, h.TPM, tpm2.NVReadPublic{NVIndex: index}, "TPM2_NV_ReadPublic of index 0x%08x", uint32(index))
	if errors.Is(err, tpm2.TPMRCHandle) {
		err = fmt.Errorf("%w: %w", ErrNVIndexNotFound, err)
	}
	if err != nil {
		return nil, tpm2.TPM2BName{}, err
	}
	area, err := rsp.NVPublic.Contents()
	if err == nil && area.NVIndex != index {
		err = fmt.Errorf("it is that of 0x%08x", uint32(area.NVIndex))
	}
	if err != nil {
		return nil, tpm2.TPM2BName{}, fmt.Errorf("public area of NV index 0x%08x: %w", uint32(index), err)
	}
	return area, rsp.NVName, nil
}

// NVChunk is how much the TPM reads at a time (TPM_PT_NV_BUFFER_MAX).
func NVChunk(ctx context.Context, h *Handles) (int, error) {
	n, known, err := TPMProperty(ctx, h, tpm2.TPMPTNVBufferMax)
	if err == nil && !known {
		err = errors.New("the TPM does not have TPM_PT_NV_BUFFER_MAX")
	}
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errors.New("TPM_PT_NV_BUFFER_MAX is 0")
	}
	return int(min(n, MaxNVChunk)), nil
}

// ReadNVCertificate reads an NV index that contains one certificate, and returns only its DER.
func ReadNVCertificate(ctx context.Context, h *Handles, index tpm2.TPMHandle) ([]byte, error) {
	data, err := ReadNV(ctx, h, index)
	if err != nil {
		return nil, err
	}
	der, err := der.TrimNVCertificate(data)
	if err != nil {
		return nil, fmt.Errorf("certificate in NV index 0x%08x: %w", uint32(index), err)
	}
	return der, nil
}

// Selection is a list of banks in the form that commands take.
func Selection(selections ...statement.PCRSelection) (list tpm2.TPMLPCRSelection) {
	for _, s := range selections {
		list.PCRSelections = append(list.PCRSelections, tpm2.TPMSPCRSelection{Hash: s.Hash, PCRSelect: s.Select})
	}
	return list
}

// ReadPCRs reads the selected PCRs of one bank, perCommand at a time: TPM2_PCR_Read returns at
// most 8, the size of TPML_DIGEST (Part 2, 10.9.4), and a TPM may return fewer.
func ReadPCRs(ctx context.Context, h *Handles, s statement.PCRSelection, perCommand int) ([]statement.PCR, error) {
	indexes := s.PCRs()
	pcrs := make([]statement.PCR, 0, len(indexes))
	for len(indexes) > 0 {
		next := indexes[:min(perCommand, len(indexes))]
		indexes = indexes[len(next):]
		ask := statement.PCRSelection{Hash: s.Hash, Select: make([]byte, max(3, next[len(next)-1]/8+1))}
		for _, i := range next {
			ask.Select[i/8] |= 1 << (i % 8)
		}
		bank := tpmwire.AlgorithmName(s.Hash)
		rsp, err := Run(ctx, h.TPM, tpm2.PCRRead{PCRSelectionIn: Selection(ask)}, "TPM2_PCR_Read of PCRs %v in bank %s", next, bank)
		if err != nil {
			return nil, err
		}
		if got := len(rsp.PCRValues.Digests); got != len(next) {
			return nil, fmt.Errorf("TPM2_PCR_Read gives %d values of PCRs %v in bank %s: the TPM has no such bank, or it is not active", got, next, bank)
		}
		for n, i := range next {
			pcrs = append(pcrs, statement.PCR{Bank: s.Hash, Index: i, Value: rsp.PCRValues.Digests[n].Buffer})
		}
	}
	return pcrs, nil
}
