package tpmop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// ErrNVIndexNotFound says that the TPM has no such NV index: a requested template, nonce or
// certificate is not provisioned. The error that wraps it names the index.
var ErrNVIndexNotFound = errors.New("no such NV index")

const (
	// maxNVChunk is the largest buffer of the TPMs in use, in bytes, and leastNVChunk what all
	// of them take.
	maxNVChunk, leastNVChunk = 2048, 512

	// leastNVIndexMax is a size of NV indexes that all TPMs in use take, in bytes.
	leastNVIndexMax = 2048
)

// ReadNV reads a whole NV index, by the empty password of the index itself or of the owner: a
// node has no other. An index has at most 65535 bytes (Part 2, 13.6, TPMS_NV_PUBLIC).
func ReadNV(ctx context.Context, h *Handles, index tpm2.TPMHandle) ([]byte, error) {
	area, name, err := ReadNVPublic(ctx, h, index)
	if err != nil {
		return nil, err
	}
	readers, err := nvReaders(area)
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
			AuthHandle: WithPassword(readers[0], name.Buffer, nil),
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: name},
			Size:       uint16(min(chunk, size-len(data))),
			Offset:     uint16(len(data)),
		}
		rsp, err := Run(ctx, h.TPM, read, "TPM2_NV_Read of index 0x%08x at offset %d", uint32(index), len(data))
		if len(readers) > 1 && isWrongPassword(err) {
			readers = readers[1:]
			continue
		}
		if readers[0] == tpm2.TPMRHOwner {
			err = ExplainPassword(err, tpm2.TPMRHOwner, nil)
		}
		if isWrongPassword(err) {
			err = fmt.Errorf("NV index 0x%08x cannot be read with the empty password, and a node has no other: %s has to change that: %w", uint32(index), nvMaker(area), err)
		}
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

// nvReaders are whose empty password is tried for an index, the index itself before the owner
// (Part 2, 13.4, TPMA_NV). A wrong password for an index counts towards the TPM's lockout unless
// it has NO_DA, and nothing says whether it has one of its own: without NO_DA it is not tried. A
// wrong one for the owner never counts.
func nvReaders(area *tpm2.TPMSNVPublic) (readers []tpm2.TPMHandle, err error) {
	a := &area.Attributes
	if a.AuthRead && a.NoDA {
		readers = append(readers, area.NVIndex)
	}
	if a.OwnerRead {
		readers = append(readers, tpm2.TPMRHOwner)
	}
	if readers == nil {
		got := "neither TPMA_NV_AUTHREAD nor TPMA_NV_OWNERREAD"
		if a.AuthRead {
			got = "TPMA_NV_AUTHREAD without TPMA_NV_NO_DA, so that a wrong password would count towards the TPM's lockout"
		}
		err = fmt.Errorf("NV index 0x%08x cannot be read: it has %s: %s has to recreate it with TPMA_NV_OWNERREAD, or with TPMA_NV_AUTHREAD and TPMA_NV_NO_DA",
			uint32(area.NVIndex), got, nvMaker(area))
	}
	return readers, err
}

// nvMaker says who can undefine an index.
func nvMaker(area *tpm2.TPMSNVPublic) string {
	if area.Attributes.PlatformCreate {
		return "the platform's firmware, which made it,"
	}
	return "the TPM's owner, who made it,"
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
		err = fmt.Errorf("the TPM returned the area of 0x%08x", uint32(area.NVIndex))
	}
	if err != nil {
		return nil, tpm2.TPM2BName{}, fmt.Errorf("public area of NV index 0x%08x: %w", uint32(index), err)
	}
	return area, rsp.NVName, nil
}

// NVChunk is how much the TPM reads or writes at a time, in bytes (TPM_PT_NV_BUFFER_MAX). TPMs of
// older firmware do not say, and values out of range are ignored.
func NVChunk(ctx context.Context, h *Handles) (int, error) {
	n, _, err := TPMProperty(ctx, h, tpm2.TPMPTNVBufferMax)
	if n == 0 || n > maxNVChunk {
		n = leastNVChunk
	}
	return int(n), err
}

// NVIndexMax is the largest size that the TPM takes for an index, in bytes (TPM_PT_NV_INDEX_MAX).
func NVIndexMax(ctx context.Context, h *Handles) (int, error) {
	n, _, err := TPMProperty(ctx, h, tpm2.TPMPTNVIndexMax)
	return int(min(cmp.Or(n, leastNVIndexMax), math.MaxUint16)), err
}

// ErrNVCertificateIncomplete says that writing a certificate into an NV index was not completed.
var ErrNVCertificateIncomplete = errors.New("the NV index holds no whole certificate")

// ReadNVCertificate reads an NV index that contains one certificate, and returns only its DER.
func ReadNVCertificate(ctx context.Context, h *Handles, index tpm2.TPMHandle) ([]byte, error) {
	data, err := ReadNV(ctx, h, index)
	switch {
	case errors.Is(err, tpm2.TPMRCNVUninitialized):
		return nil, fmt.Errorf("%w: %w", ErrNVCertificateIncomplete, err)
	case err != nil:
		return nil, err
	case len(data) != 0 && data[0] == 0xff: // how an index begins if writing started at its end
		return nil, fmt.Errorf("%w: 0x%08x", ErrNVCertificateIncomplete, uint32(index))
	}
	encoded, err := der.TrimNVCertificate(data)
	if err != nil {
		err = fmt.Errorf("certificate in NV index 0x%08x: %w", uint32(index), err)
	}
	return encoded, err
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
