package tpm

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmop"
)

// The NV indexes of an EK's CA certificates (TCG EK Credential Profile 2.6, section
// 2.2.1.5).
const (
	firstEKChainIndex tpm2.TPMHandle = 0x01c00100
	lastEKChainIndex  tpm2.TPMHandle = 0x01c001ff
)

// ReadEKChain reads the CA certificates that a TPM keeps for its EK certificates in the
// NV indexes 0x01C00100 to 0x01C001FF, and returns those that stand above ekCertificate
// (DER), its issuer first and the root left out, as [ProverOptions].Intermediates
// wants them; ProverOptions.EKChainFromNV does it for each message. There are none
// where the TPM keeps none. It trusts nothing: the control plane verifies. Intel's parts
// with an on-die CA have their chain there.
//
// An error says which command failed, or is an [*Error] with
// [tpmcert.CheckCertificateEncoding], [tpmcert.CheckEKChainEncoding] or [attest.CheckSize]. Nothing stays
// loaded in the TPM.
func ReadEKChain(ctx context.Context, tpm transport.TPM, ekCertificate []byte) ([][]byte, error) {
	var above [][]byte
	err := tpmop.Share(tpm).Do(ctx, func(h *tpmop.Handles) (err error) {
		above, err = ekChainOf(ctx, h, ekCertificate)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tpm: EK chain: %w", err)
	}
	return above, nil
}

// ekChainOf reads what the TPM has above a leaf.
func ekChainOf(ctx context.Context, h *tpmop.Handles, leaf []byte) ([][]byte, error) {
	cert, err := x509.ParseCertificate(leaf)
	if err != nil {
		return nil, &Error{Check: tpmcert.CheckCertificateEncoding, Got: "an EK certificate that does not parse", Err: err}
	}
	certs, err := readEKChain(ctx, h)
	if err != nil {
		return nil, err
	}
	return tpmcert.ChainAbove(cert, certs), nil
}

// readEKChain reads what is in the NV indexes, in their order.
func readEKChain(ctx context.Context, h *tpmop.Handles) ([]*x509.Certificate, error) {
	found, err := nvIndexes(ctx, h, firstEKChainIndex, lastEKChainIndex)
	if err != nil {
		return nil, err
	}
	var contents [][]byte
	size := 0
	for _, index := range found {
		content, err := tpmop.ReadNV(ctx, h, index)
		if err != nil {
			return nil, err
		}
		if size += len(content); size > tpmcert.MaxNVChain {
			return nil, &Error{Check: der.CheckSize, Got: "an EK chain of more than 64 KiB", Want: "at most that"}
		}
		contents = append(contents, content)
	}
	return tpmcert.ParseEKChain(contents)
}

// nvIndexes lists the NV indexes from first to last that the TPM has, ascending. A TPM
// gives some at a time (Part 3, 30.2: moreData).
func nvIndexes(ctx context.Context, h *tpmop.Handles, first, last tpm2.TPMHandle) ([]tpm2.TPMHandle, error) {
	var found []tpm2.TPMHandle
	for from := first; from <= last; {
		rsp, err := tpmop.Run(ctx, h.TPM, tpm2.GetCapability{
			Capability: tpm2.TPMCapHandles, Property: uint32(from), PropertyCount: uint32(last-from) + 1,
		}, "TPM2_GetCapability of the NV indexes from 0x%08x", uint32(from))
		if err != nil {
			return nil, err
		}
		list, err := rsp.CapabilityData.Data.Handles()
		if err != nil {
			return nil, fmt.Errorf("TPM2_GetCapability of the NV indexes: %w", err)
		}
		for _, index := range list.Handle {
			if index < from {
				return nil, fmt.Errorf("TPM2_GetCapability of the NV indexes: got 0x%08x, want them ascending from 0x%08x", uint32(index), uint32(from))
			}
			if index > last {
				return found, nil
			}
			found = append(found, index)
			from = index + 1
		}
		if !rsp.MoreData || len(list.Handle) == 0 {
			return found, nil
		}
	}
	return found, nil
}
