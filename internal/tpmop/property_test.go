package tpmop

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A property that a TPM does not have is not known, whichever way the TPM says it; any other
// refusal is an error.
func TestPropertyThatIsNotThere(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for name, c := range map[string]struct {
		tpm   transport.TPM
		known bool
		want  error
	}{
		"there": {tpm, true, nil},
		"the next one": {&tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(b []byte) {
			binary.BigEndian.PutUint32(b[19:], uint32(tpm2.TPMPTNVIndexMax)+1)
		}}, false, nil},
		"TPM_RC_VALUE":   {tpmsim.Faulty(tpm, tpmsim.AnswerAt(1, tpm2.TPMRCValue|0x2c0)), false, nil},
		"TPM_RC_FAILURE": {tpmsim.Faulty(tpm, tpmsim.AnswerAt(1, tpm2.TPMRCFailure)), false, tpm2.TPMRCFailure},
		"no TPM":         {noTPM{}, false, errNoSuchDevice},
	} {
		t.Run(name, func(t *testing.T) {
			known, err := do(t, c.tpm, func(ctx context.Context, h *Handles) (bool, error) {
				value, known, err := TPMProperty(ctx, h, tpm2.TPMPTNVIndexMax)
				if known != (value != 0) {
					t.Errorf("the value %d, known: %t", value, known)
				}
				return known, err
			})
			if known != c.known || !errors.Is(err, c.want) {
				t.Errorf("known: %t, %v", known, err)
			}
		})
	}
}
