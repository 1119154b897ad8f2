package tpmop

import (
	"context"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// Selection is a list of banks as commands take it.
func Selection(selections ...statement.PCRSelection) (list tpm2.TPMLPCRSelection) {
	for _, s := range selections {
		list.PCRSelections = append(list.PCRSelections, tpm2.TPMSPCRSelection{Hash: s.Hash, PCRSelect: s.Select})
	}
	return list
}

// ReadPCRs reads the selected PCRs of one bank, so many a command: TPM2_PCR_Read returns 8 at
// most, the size of TPML_DIGEST (Part 2, 10.9.4), and a TPM may return fewer.
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
