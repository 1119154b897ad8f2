package tpmop

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Whether the endorsement hierarchy has a password may not be known; any other refusal is an error.
func TestHasEndorsementPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	ask := func(rc tpm2.TPMRC) (has, known bool, err error) {
		_, err = do(t, tpmsim.Faulty(tpm, tpmsim.AnswerAt(1, rc)), func(ctx context.Context, h *Handles) (_ struct{}, err error) {
			has, known, err = HasEndorsementPassword(ctx, h)
			return struct{}{}, err
		})
		return has, known, err
	}
	if has, known, err := ask(tpm2.TPMRCSuccess); has || !known || err != nil {
		t.Errorf("none: %t, known: %t, %v", has, known, err)
	}
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHEndorsement, nil, []byte("theirs"))
	if has, known, err := ask(tpm2.TPMRCSuccess); !has || !known || err != nil {
		t.Errorf("one: %t, known: %t, %v", has, known, err)
	}
	if has, known, err := ask(tpm2.TPMRCValue | 0x2c0); has || known || err != nil {
		t.Errorf("not said: %t, known: %t, %v", has, known, err)
	}
	if has, known, err := ask(tpm2.TPMRCFailure); has || known || !errors.Is(err, tpm2.TPMRCFailure) {
		t.Errorf("a failure: %t, known: %t, %v", has, known, err)
	}
}
