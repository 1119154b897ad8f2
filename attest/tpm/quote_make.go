package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

const (
	// quoteAttempts is how often a quote is made anew because a PCR was extended
	// between its value's reading and the quote.
	quoteAttempts = 4
	// pcrsPerRead is how many values TPM2_PCR_Read returns at most.
	pcrsPerRead = 8
)

// errPCRsMoved says that a value was read that is not the quoted one.
var errPCRsMoved = errors.New("PCRs were extended while they were quoted")

// quote has ak quote the selected PCRs over qualifyingData, which is 1 to 64 bytes:
// always a labelled HMAC of this package, as for certify. What the TPM answers is
// held against what was asked: a TPM leaves PCRs that it does not have out of its
// quotes without a word.
func quote(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey, selection []statement.PCRSelection, qualifyingData []byte) (*statement.QuoteEvidence, error) {
	if len(qualifyingData) == 0 || len(qualifyingData) > 64 {
		return nil, fmt.Errorf("qualifying data of %d bytes, want 1 to 64", len(qualifyingData))
	}
	want, err := statement.SelectedPCRs(selection, true)
	if err != nil {
		return nil, fmt.Errorf("PCRs to quote: %w", err)
	}
	for range quoteAttempts {
		var e *statement.QuoteEvidence
		if e, err = quoteOnce(ctx, h, ak, selection, qualifyingData); err != nil {
			return nil, err
		}
		if err = checkQuoteMade(e, ak, want, qualifyingData); err == nil {
			return e, nil
		}
		if !errors.Is(err, errPCRsMoved) {
			return nil, fmt.Errorf("the TPM's answer to TPM2_Quote: %w", err)
		}
	}
	return nil, fmt.Errorf("after %d attempts: %w", quoteAttempts, err)
}

func quoteOnce(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey, selection []statement.PCRSelection, qualifyingData []byte) (*statement.QuoteEvidence, error) {
	var pcrs []statement.PCR
	for _, s := range selection {
		read, err := tpmop.ReadPCRs(ctx, h, s, pcrsPerRead)
		if err != nil {
			return nil, err
		}
		for _, p := range read {
			if err := p.Check(); err != nil {
				return nil, fmt.Errorf("TPM2_PCR_Read: %w", err)
			}
		}
		pcrs = append(pcrs, read...)
	}
	rsp, err := tpmop.Retry(func() (*tpm2.QuoteResponse, error) {
		return tpmop.Run(ctx, h.TPM, tpm2.Quote{
			SignHandle:     tpmop.WithPassword(ak.Handle, ak.Name, nil),
			QualifyingData: tpm2.TPM2BData{Buffer: qualifyingData},
			InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}, // the AK's own
			PCRSelect:      tpmop.Selection(selection...),
		}, "TPM2_Quote with 0x%08x", uint32(ak.Handle))
	})
	if err != nil {
		return nil, err
	}
	return &statement.QuoteEvidence{Attest: rsp.Quoted.Bytes(), Signature: tpm2.Marshal(rsp.Signature), PCRs: pcrs}, nil
}

// checkQuoteMade is what the node checks of its own quote, its signature aside.
func checkQuoteMade(e *statement.QuoteEvidence, ak *tpmop.LoadedKey, want []statement.PCRID, qualifyingData []byte) error {
	a, err := parseMade(e.Attest, qualifyingData)
	if err != nil {
		return err
	}
	if a.Quote == nil {
		return errors.New("it quotes nothing")
	}
	got, err := statement.SelectedPCRs(a.Quote.Selections, true)
	if err != nil {
		return err
	}
	if !statement.SamePCRs(got, want) {
		return tpmwire.Refuse(statement.CheckPCRSelection, statement.NamesOfPCRs(got), statement.NamesOfPCRs(want))
	}
	sorted, err := statement.SortedPCRs(e.PCRs)
	if err != nil {
		return err
	}
	if digest := statement.DigestOfPCRs(tpmwire.HashOf(ak.Public.Scheme.Hash), got, sorted); !bytes.Equal(digest, a.Quote.PCRDigest) {
		return errPCRsMoved
	}
	return nil
}
