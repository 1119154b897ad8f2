package tpm

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/google/go-tpm/tpm2"

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

// ekChainOf reads the CA certificates that a TPM keeps for its EK certificates in the
// NV indexes 0x01C00100 to 0x01C001FF, and returns those that stand above a leaf (DER),
// its issuer first and the root left out. There are none where the TPM keeps none. It
// trusts nothing: the control plane verifies.
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
// gives some at a time.
func nvIndexes(ctx context.Context, h *tpmop.Handles, first, last tpm2.TPMHandle) (found []tpm2.TPMHandle, err error) {
	for more := true; more && first <= last; {
		var list []tpm2.TPMHandle
		if list, more, err = h.List(ctx, first, uint32(last-first)+1); err != nil {
			return nil, err
		}
		more = more && len(list) != 0
		for _, index := range list {
			if index < first {
				return nil, fmt.Errorf("TPM2_GetCapability of the NV indexes: got 0x%08x, want them ascending from 0x%08x", uint32(index), uint32(first))
			}
			if index > last {
				return found, nil
			}
			found, first = append(found, index), index+1
		}
	}
	return found, nil
}
