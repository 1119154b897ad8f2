package tpmkey

import (
	"context"

	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A policy is read with 1 to 16 banks of 1 to 4 octets, and made of the same.
func TestLimitsOfKeyPolicies(t *testing.T) {
	pcr := func(banks, octets int) keyPolicyStep {
		s := keyPolicyStep{digest: make([]byte, 32)}
		for range banks {
			s.selections = append(s.selections, statement.PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: make([]byte, octets)})
		}
		if s.selections == nil {
			s.selections = []statement.PCRSelection{}
		}
		return s
	}
	for name, c := range map[string]struct {
		step keyPolicyStep
		good bool
	}{
		"one bank": {pcr(1, 3), true}, "16 banks": {pcr(16, 3), true}, "17 banks": {pcr(17, 3), false}, "no bank": {pcr(0, 3), false},
		"no octet": {pcr(1, 0), false}, "4 octets": {pcr(1, 4), true}, "5 octets": {pcr(1, 5), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseKeyPolicy(keyPolicy{c.step}.statements()); c.good != (err == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
	one := keyPolicy{pcr(1, 3)}
	if d, err := one.digest(tpm2.TPMAlgSM3256); err == nil {
		t.Errorf("digest under another hash: %x", d)
	}
	if err := one.check(&statement.Public{NameAlg: tpm2.TPMAlgSM3256}); err == nil {
		t.Error("the policy of a key under another hash")
	}
	tpm := tpmsim.Faulty(tpmlab.NewTPM(t), nil)
	selections := func(n, octets int) []statement.PCRSelection {
		all := make([]statement.PCRSelection, n)
		for i := range all {
			all[i] = statement.PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: append([]byte{1}, make([]byte, octets-1)...)}
		}
		return all
	}
	for name, c := range map[string]struct {
		selections []statement.PCRSelection
		good       bool
	}{
		"one": {selections(1, 3), true}, "4 octets": {selections(1, 4), true}, "5 octets": {selections(1, 5), false}, "6 octets": {selections(1, 6), false},
		"16 of them": {selections(16, 3), true}, "17 of them": {selections(17, 3), false}, "no PCR": {[]statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: make([]byte, 3)}}, false},
	} {
		t.Run("present, "+name, func(t *testing.T) {
			_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (keyPolicyStep, error) {
				return presentPCRs(ctx, h, c.selections, tpm2.TPMAlgSHA256)
			})
			if c.good != (err == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
}
