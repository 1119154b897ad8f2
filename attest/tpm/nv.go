package tpm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// ErrNVIndexNotFound says that the TPM has no such NV index: a template, nonce or
// certificate that was asked for is not provisioned. The error that wraps it
// names the index.
var ErrNVIndexNotFound = errors.New("no such NV index")

// maxNVChunk bounds one read, whatever the TPM says about itself: 2048 bytes is
// the largest buffer of the TPMs in use.
const maxNVChunk = 2048

// readNV reads a whole NV index, with the index itself and its empty password as
// the authority (TPMA_NV_AUTHREAD): a node does not know the owner's password. An
// index has at most 65535 bytes (Part 2, 13.6, TPMS_NV_PUBLIC).
func readNV(ctx context.Context, h *handles, index tpm2.TPMHandle) ([]byte, error) {
	if index>>24 != 0x01 {
		return nil, fmt.Errorf("0x%08x is not an NV index: want 0x01000000 to 0x01ffffff", uint32(index))
	}
	pub, err := run(ctx, h.tpm, tpm2.NVReadPublic{NVIndex: index}, "TPM2_NV_ReadPublic of index 0x%08x", uint32(index))
	if err != nil {
		if errors.Is(err, tpm2.TPMRCHandle) {
			return nil, fmt.Errorf("%w: %w", ErrNVIndexNotFound, err)
		}
		return nil, err
	}
	area, err := pub.NVPublic.Contents()
	if err != nil {
		return nil, fmt.Errorf("public area of NV index 0x%08x: %w", uint32(index), err)
	}
	if area.NVIndex != index {
		return nil, fmt.Errorf("asked for NV index 0x%08x, got the public area of 0x%08x", uint32(index), uint32(area.NVIndex))
	}
	chunk, err := nvChunk(ctx, h)
	if err != nil {
		return nil, err
	}

	size := int(area.DataSize)
	data := make([]byte, 0, size)
	for len(data) < size {
		read := tpm2.NVRead{
			AuthHandle: withPassword(index, pub.NVName.Buffer, nil),
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: pub.NVName},
			Size:       uint16(min(chunk, size-len(data))),
			Offset:     uint16(len(data)),
		}
		rsp, err := run(ctx, h.tpm, read, "TPM2_NV_Read of index 0x%08x at offset %d", uint32(index), len(data))
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

// nvChunk is how much the TPM reads at a time (TPM_PT_NV_BUFFER_MAX).
func nvChunk(ctx context.Context, h *handles) (int, error) {
	n, err := tpmProperty(ctx, h, tpm2.TPMPTNVBufferMax)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errors.New("TPM_PT_NV_BUFFER_MAX is 0")
	}
	return int(min(n, maxNVChunk)), nil
}

// tpmProperty reads one of the TPM's properties (Part 2, 6.13).
func tpmProperty(ctx context.Context, h *handles, property tpm2.TPMPT) (uint32, error) {
	rsp, err := run(ctx, h.tpm, tpm2.GetCapability{
		Capability: tpm2.TPMCapTPMProperties, Property: uint32(property), PropertyCount: 1,
	}, "TPM2_GetCapability of property 0x%x", uint32(property))
	if err != nil {
		return 0, err
	}
	list, err := rsp.CapabilityData.Data.TPMProperties()
	if err != nil {
		return 0, fmt.Errorf("TPM2_GetCapability of property 0x%x: %w", uint32(property), err)
	}
	for _, p := range list.TPMProperty {
		if p.Property == property {
			return p.Value, nil
		}
	}
	return 0, fmt.Errorf("the TPM does not have property 0x%x", uint32(property))
}

// readNVCertificate reads an NV index that holds one certificate, and returns its
// DER alone.
func readNVCertificate(ctx context.Context, h *handles, index tpm2.TPMHandle) ([]byte, error) {
	data, err := readNV(ctx, h, index)
	if err != nil {
		return nil, err
	}
	der, err := trimNVCertificate(data)
	if err != nil {
		return nil, fmt.Errorf("certificate in NV index 0x%08x: %w", uint32(index), err)
	}
	return der, nil
}

// trimNVCertificate takes what vendors put around a certificate off it: the
// header of a TCG_PCCLIENT_STORED_CERT with a full certificate (tag 0x1001, type
// 0, 16 bits of size, tag 0x1002; TCG PC Client Specific Implementation
// Specification for Conventional BIOS 1.21, 7.3.2; some leave the inner tag out),
// and padding with 0x00 or 0xff where the index is larger than its content.
func trimNVCertificate(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte{0x10, 0x01, 0x00}) {
		if len(data) < 5 {
			return nil, fmt.Errorf("header of %d bytes is cut short", len(data))
		}
		size := int(binary.BigEndian.Uint16(data[3:]))
		if len(data)-5 < size {
			return nil, fmt.Errorf("header states %d bytes, %d follow", size, len(data)-5)
		}
		if err := checkPadding(data[5+size:]); err != nil {
			return nil, err
		}
		data = bytes.TrimPrefix(data[5:5+size], []byte{0x10, 0x02})
	}
	rest := cryptobyte.String(data)
	var der cryptobyte.String
	if !rest.ReadASN1Element(&der, asn1.SEQUENCE) {
		return nil, fmt.Errorf("%d bytes that do not begin with a DER SEQUENCE", len(data))
	}
	if err := checkPadding(rest); err != nil {
		return nil, err
	}
	return der, nil
}

// checkPadding refuses anything but 0x00 alone or 0xff alone.
func checkPadding(b []byte) error {
	for i, c := range b {
		if c != b[0] || (c != 0x00 && c != 0xff) {
			return fmt.Errorf("byte 0x%02x at %d of the %d bytes behind it is not padding", c, i, len(b))
		}
	}
	return nil
}
