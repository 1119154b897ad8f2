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

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// ErrPCRPolicy says that a key is bound to PCRs that do not have the values that they
// had when the key was made.
var ErrPCRPolicy = errors.New("the PCRs do not have the values that the key is bound to")

// keyPolicy is a list of policy commands that must all succeed: TPM2_PolicyPCR and
// TPM2_PolicyAuthValue.
type keyPolicy []keyPolicyStep

// keyPolicyStep is TPM2_PolicyPCR, or TPM2_PolicyAuthValue if it has no PCRs.
type keyPolicyStep struct {
	selections []statement.PCRSelection
	digest     []byte // of the PCRs' values, under the name algorithm of the key
}

// parseKeyPolicy reads the statements of a key file.
func parseKeyPolicy(statements []PolicyCommand) (keyPolicy, error) {
	var p keyPolicy
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
		p = append(p, step)
	}
	return p, nil
}

// pcr is the command of a step that has PCRs.
func (s *keyPolicyStep) pcr(session tpm2.TPMISHPolicy) tpm2.PolicyPCR {
	return tpm2.PolicyPCR{PolicySession: session, PcrDigest: tpm2.TPM2BDigest{Buffer: s.digest}, Pcrs: tpmop.Selection(s.selections...)}
}

// statements returns what parseKeyPolicy reads.
func (p keyPolicy) statements() []PolicyCommand {
	var all []PolicyCommand
	for _, s := range p {
		one := PolicyCommand{Command: tpm2.TPMCCPolicyAuthValue}
		if s.selections != nil {
			c := s.pcr(0)
			one = PolicyCommand{Command: tpm2.TPMCCPolicyPCR, Body: append(tpm2.Marshal(c.PcrDigest), tpm2.Marshal(c.Pcrs)...)}
		}
		all = append(all, one)
	}
	return all
}

// readPCRSelections reads a TPML_PCR_SELECTION (Part 2, 10.9.7) of 1 to 16 banks.
func readPCRSelections(s *cryptobyte.String, out *[]statement.PCRSelection) bool {
	var n uint32
	if !s.ReadUint32(&n) || n == 0 || n > tpmwire.MaxPCRBanks {
		return false
	}
	for range n {
		var one statement.PCRSelection
		if !s.ReadUint16((*uint16)(&one.Hash)) || !s.ReadUint8LengthPrefixed((*cryptobyte.String)(&one.Select)) ||
			len(one.Select) == 0 || len(one.Select) > tpmwire.MaxPCRSelectSize {
			return false
		}
		*out = append(*out, one)
	}
	return true
}

// digest is the policy digest of the commands (Part 3, 23.7 and 23.17), nil without any.
func (p keyPolicy) digest(hash tpm2.TPMIAlgHash) ([]byte, error) {
	if len(p) == 0 {
		return nil, nil
	}
	state, err := tpm2.NewPolicyCalculator(hash)
	if err != nil {
		return nil, err
	}
	for _, s := range p {
		var command tpm2.PolicyCommand = tpm2.PolicyAuthValue{}
		if s.selections != nil {
			command = s.pcr(0)
		}
		if err := command.Update(state); err != nil {
			return nil, err
		}
	}
	return state.Hash().Digest, nil
}

// check compares the policy with that of the key.
func (p keyPolicy) check(public *statement.Public) error {
	digest, err := p.digest(public.NameAlg)
	if err != nil {
		return err
	}
	if len(digest) == 0 && public.Attributes.Has(statement.AttributeUserWithAuth) {
		return nil // the key may have a policy that no use needs
	}
	if !bytes.Equal(digest, public.AuthPolicy) {
		return fmt.Errorf("its commands have the digest %x, the key has %x", digest, public.AuthPolicy)
	}
	return nil
}

// needsPassword reports whether the commands require the password.
func (p keyPolicy) needsPassword() bool {
	return slices.ContainsFunc(p, func(s keyPolicyStep) bool { return s.selections == nil })
}

// run runs the commands in a policy session.
func (p keyPolicy) run(tpm transport.TPM, session tpm2.TPMISHPolicy, _ tpm2.TPM2BNonce) error {
	for _, s := range p {
		what, err := "TPM2_PolicyPCR", error(nil)
		if s.selections == nil {
			what = "TPM2_PolicyAuthValue"
			_, err = tpm2.PolicyAuthValue{PolicySession: session}.Execute(tpm)
		} else if _, err = s.pcr(session).Execute(tpm); errors.Is(err, tpm2.TPMRCValue) {
			err = fmt.Errorf("%w: %w", ErrPCRPolicy, err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// presentPCRs is the step that holds while PCRs have their present values.
func presentPCRs(ctx context.Context, h *tpmop.Handles, selections []statement.PCRSelection, hash tpm2.TPMIAlgHash) (keyPolicyStep, error) {
	var values []byte
	for i, s := range selections {
		if len(s.PCRs()) == 0 || len(s.Select) > tpmwire.MaxPCRSelectSize || i >= tpmwire.MaxPCRBanks {
			return keyPolicyStep{}, fmt.Errorf("PCRs: selection %d has no PCR, or more than there are", i+1)
		}
		pcrs, err := tpmop.ReadPCRs(ctx, h, s, 1) // TPMs return as many as they like
		if err != nil {
			return keyPolicyStep{}, err
		}
		for _, p := range pcrs {
			values = append(values, p.Value...)
		}
	}
	return keyPolicyStep{selections: selections, digest: tpmwire.AppendDigest(nil, tpmwire.HashOf(hash), values)}, nil
}
