package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

const (
	// quoteAttempts is how often a quote is made anew because a PCR was extended
	// between its value's reading and the quote.
	quoteAttempts = 4
	// pcrsPerRead is how many values TPM2_PCR_Read returns at most: the size of
	// TPML_DIGEST, Part 2, 10.9.4.
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
		read, err := readBank(ctx, h, s)
		if err != nil {
			return nil, err
		}
		pcrs = append(pcrs, read...)
	}
	rsp, err := runSigning(ctx, h.TPM, tpm2.Quote{
		SignHandle:     tpmop.WithPassword(ak.Handle, ak.Name, nil),
		QualifyingData: tpm2.TPM2BData{Buffer: qualifyingData},
		InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}, // the AK's own
		PCRSelect:      selectionOf(selection...),
	}, "TPM2_Quote with 0x%08x", uint32(ak.Handle))
	if err != nil {
		return nil, err
	}
	return &statement.QuoteEvidence{Attest: rsp.Quoted.Bytes(), Signature: tpm2.Marshal(rsp.Signature), PCRs: pcrs}, nil
}

// runSigning is run for a command that an attestation key signs in, and tries again
// where the TPM asks for it: see certifyLoaded.
func runSigning[R any](ctx context.Context, tpm transport.TPM, cmd tpmop.Command[R], what string, args ...any) (*R, error) {
	for tries := 1; ; tries++ {
		rsp, err := tpmop.Run(ctx, tpm, cmd, what, args...)
		if !errors.Is(err, tpm2.TPMRCRetry) || tries == tpmkey.MaxSignTries {
			return rsp, err
		}
	}
}

// readBank reads the selected PCRs of one bank, a few at a time.
func readBank(ctx context.Context, h *tpmop.Handles, s statement.PCRSelection) ([]statement.PCR, error) {
	indexes := s.PCRs()
	pcrs := make([]statement.PCR, 0, len(indexes))
	for len(indexes) > 0 {
		next := indexes[:min(pcrsPerRead, len(indexes))]
		indexes = indexes[len(next):]
		ask := statement.PCRSelection{Hash: s.Hash, Select: make([]byte, len(s.Select))}
		for _, i := range next {
			ask.Select[i/8] |= 1 << (i % 8)
		}
		rsp, err := tpmop.Run(ctx, h.TPM, tpm2.PCRRead{PCRSelectionIn: selectionOf(ask)}, "TPM2_PCR_Read of bank %s", tpmwire.AlgorithmName(s.Hash))
		if err != nil {
			return nil, err
		}
		if got := len(rsp.PCRValues.Digests); got != len(next) {
			return nil, fmt.Errorf("TPM2_PCR_Read gives %d values of PCRs %v in bank %s: the TPM has no such bank, or it is not active",
				got, next, tpmwire.AlgorithmName(s.Hash))
		}
		for n, i := range next {
			p := statement.PCR{Bank: s.Hash, Index: i, Value: rsp.PCRValues.Digests[n].Buffer}
			if err := p.Check(); err != nil {
				return nil, fmt.Errorf("TPM2_PCR_Read: %w", err)
			}
			pcrs = append(pcrs, p)
		}
	}
	return pcrs, nil
}

func selectionOf(selection ...statement.PCRSelection) tpm2.TPMLPCRSelection {
	var out tpm2.TPMLPCRSelection
	for _, s := range selection {
		out.PCRSelections = append(out.PCRSelections, tpm2.TPMSPCRSelection{Hash: s.Hash, PCRSelect: s.Select})
	}
	return out
}

// checkQuoteMade is what the node checks of its own quote, its signature aside.
func checkQuoteMade(e *statement.QuoteEvidence, ak *tpmop.LoadedKey, want []statement.PCRID, qualifyingData []byte) error {
	a, err := statement.ParseAttestation(e.Attest)
	if err != nil {
		return err
	}
	if a.Quote == nil {
		return errors.New("it quotes nothing")
	}
	if !bytes.Equal(a.ExtraData, qualifyingData) {
		return errors.New("its qualifying data is not what was given")
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
