package tpmkey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// ErrPCRPolicy says that a key is bound to PCRs that do not have the values that they
// had when the key was made.
var ErrPCRPolicy = errors.New("the PCRs do not have the values that the key is bound to")

// keyPolicy is a list of policy commands that all must succeed: TPM2_PolicyPCR and
// TPM2_PolicyAuthValue.
type keyPolicy struct {
	steps []keyPolicyStep
}

// keyPolicyStep is TPM2_PolicyPCR, or TPM2_PolicyAuthValue where it has no PCRs.
type keyPolicyStep struct {
	selections []statement.PCRSelection
	digest     []byte // of the PCRs' values, under the name algorithm of the key
}

// parseKeyPolicy reads the statements of a key file.
func parseKeyPolicy(statements []Policy) (*keyPolicy, error) {
	p := &keyPolicy{}
	for _, s := range statements {
		step := keyPolicyStep{}
		body := cryptobyte.String(s.Body)
		switch s.Command {
		case tpm2.TPMCCPolicyAuthValue:
		case tpm2.TPMCCPolicyPCR:
			if !tpmwire.ReadTPM2B(&body, &step.digest, tpmwire.MaxDigestSize) || !readPCRSelections(&body, &step.selections) {
				return nil, errors.New("parameters of TPM2_PolicyPCR that are not a digest and a selection")
			}
		default:
			return nil, fmt.Errorf("command 0x%08x is not supported: want TPM2_PolicyPCR or TPM2_PolicyAuthValue", uint32(s.Command))
		}
		if !body.Empty() {
			return nil, fmt.Errorf("%d bytes after the parameters of command 0x%08x", len(body), uint32(s.Command))
		}
		p.steps = append(p.steps, step)
	}
	return p, nil
}

// statements is what parseKeyPolicy reads.
func (p *keyPolicy) statements() ([]Policy, error) {
	var all []Policy
	for _, s := range p.steps {
		if s.selections == nil {
			all = append(all, Policy{Command: tpm2.TPMCCPolicyAuthValue})
			continue
		}
		b := cryptobyte.NewBuilder(nil)
		tpmwire.AddTPM2B(b, s.digest)
		addPCRSelections(b, s.selections)
		body, err := b.Bytes()
		if err != nil {
			return nil, err
		}
		all = append(all, Policy{Command: tpm2.TPMCCPolicyPCR, Body: body})
	}
	return all, nil
}

// readPCRSelections reads a TPML_PCR_SELECTION (Part 2, 10.9.7) of 1 to 16 banks.
func readPCRSelections(s *cryptobyte.String, out *[]statement.PCRSelection) bool {
	var n uint32
	if !s.ReadUint32(&n) || n == 0 || n > tpmwire.MaxPCRBanks {
		return false
	}
	for range n {
		var one statement.PCRSelection
		var octets cryptobyte.String
		if !s.ReadUint16((*uint16)(&one.Hash)) || !s.ReadUint8LengthPrefixed(&octets) ||
			len(octets) == 0 || len(octets) > tpmwire.MaxPCRSelectSize {
			return false
		}
		one.Select = octets
		*out = append(*out, one)
	}
	return true
}

func addPCRSelections(b *cryptobyte.Builder, selections []statement.PCRSelection) {
	b.AddUint32(uint32(len(selections)))
	for _, s := range selections {
		b.AddUint16(uint16(s.Hash))
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(s.Select) })
	}
}

// digest is the policy digest that the commands arrive at (Part 3, 23.7 and 23.17),
// nil for no commands.
func (p *keyPolicy) digest(hash tpm2.TPMIAlgHash) ([]byte, error) {
	if len(p.steps) == 0 {
		return nil, nil
	}
	h := tpmwire.HashOf(hash)
	if h == 0 {
		return nil, fmt.Errorf("hash 0x%04x", uint16(hash))
	}
	digest := make([]byte, h.Size())
	for _, s := range p.steps {
		b := cryptobyte.NewBuilder(slices.Clone(digest))
		if s.selections == nil {
			b.AddUint32(uint32(tpm2.TPMCCPolicyAuthValue))
		} else {
			b.AddUint32(uint32(tpm2.TPMCCPolicyPCR))
			addPCRSelections(b, s.selections)
			b.AddBytes(s.digest)
		}
		message, err := b.Bytes()
		if err != nil {
			return nil, err
		}
		digest = tpmwire.AppendDigest(nil, h, message)
	}
	return digest, nil
}

// check holds the policy against that of the key.
func (p *keyPolicy) check(public *statement.Public) error {
	digest, err := p.digest(public.NameAlg)
	if err != nil {
		return err
	}
	if len(digest) == 0 && public.Attributes.Has(statement.AttributeUserWithAuth) {
		return nil // the key may have a policy that nobody needs
	}
	if !bytes.Equal(digest, public.AuthPolicy) {
		return fmt.Errorf("its commands have the digest %x, the key has %x", digest, public.AuthPolicy)
	}
	return nil
}

// needsPassword: the commands say so.
func (p *keyPolicy) needsPassword() bool {
	return slices.ContainsFunc(p.steps, func(s keyPolicyStep) bool { return s.selections == nil })
}

// run runs the commands in a policy session.
func (p *keyPolicy) run(tpm transport.TPM, session tpm2.TPMISHPolicy, _ tpm2.TPM2BNonce) error {
	for _, s := range p.steps {
		if s.selections == nil {
			if _, err := (tpm2.PolicyAuthValue{PolicySession: session}).Execute(tpm); err != nil {
				return fmt.Errorf("TPM2_PolicyAuthValue: %w", err)
			}
			continue
		}
		_, err := tpm2.PolicyPCR{
			PolicySession: session, PcrDigest: tpm2.TPM2BDigest{Buffer: s.digest}, Pcrs: selectionList(s.selections),
		}.Execute(tpm)
		if errors.Is(err, tpm2.TPMRCValue) {
			return fmt.Errorf("%w: TPM2_PolicyPCR: %w", ErrPCRPolicy, err)
		}
		if err != nil {
			return fmt.Errorf("TPM2_PolicyPCR: %w", err)
		}
	}
	return nil
}

func selectionList(selections []statement.PCRSelection) tpm2.TPMLPCRSelection {
	var list tpm2.TPMLPCRSelection
	for _, s := range selections {
		list.PCRSelections = append(list.PCRSelections, tpm2.TPMSPCRSelection{Hash: s.Hash, PCRSelect: s.Select})
	}
	return list
}

// presentPCRs is the step that holds as long as PCRs have the values of now.
func presentPCRs(ctx context.Context, h *tpmop.Handles, selections []statement.PCRSelection, hash tpm2.TPMIAlgHash) (*keyPolicyStep, error) {
	var values []byte
	for i, s := range selections {
		indexes := s.PCRs()
		if len(indexes) == 0 || len(s.Select) > tpmwire.MaxPCRSelectSize || i >= tpmwire.MaxPCRBanks {
			return nil, fmt.Errorf("PCRs: selection %d has no PCR, or more than there are", i+1)
		}
		for _, index := range indexes { // one a command: TPMs return as many as they like
			value, err := readPCR(ctx, h, s.Hash, index)
			if err != nil {
				return nil, err
			}
			values = append(values, value...)
		}
	}
	return &keyPolicyStep{selections: selections, digest: tpmwire.AppendDigest(nil, tpmwire.HashOf(hash), values)}, nil
}

func readPCR(ctx context.Context, h *tpmop.Handles, bank tpm2.TPMAlgID, index int) ([]byte, error) {
	one := make([]byte, max(3, index/8+1))
	one[index/8] = 1 << (index % 8)
	rsp, err := tpmop.Run(ctx, h.TPM, tpm2.PCRRead{
		PCRSelectionIn: selectionList([]statement.PCRSelection{{Hash: bank, Select: one}}),
	}, "TPM2_PCR_Read of PCR %d in bank 0x%04x", index, uint16(bank))
	if err != nil {
		return nil, err
	}
	if n := len(rsp.PCRValues.Digests); n != 1 {
		return nil, fmt.Errorf("PCR %d in bank 0x%04x: the TPM gives %d values, want 1", index, uint16(bank), n)
	}
	return rsp.PCRValues.Digests[0].Buffer, nil
}
