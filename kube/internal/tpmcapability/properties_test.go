package tpmcapability

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestRemember counts how often a TPM is asked.
func TestRemember(t *testing.T) {
	counted := tpmsim.Faulty(tpmlab.NewTPM(t), nil)
	tpm := Remember(counted)
	for name, c := range map[string]struct {
		property tpm2.TPMPT
		asked    int
	}{
		"fixed":    {tpm2.TPMPTManufacturer, 1},
		"variable": {tpm2.TPMPTLockoutCounter, 3},
	} {
		t.Run(name, func(t *testing.T) {
			before := counted.Count()
			var first []byte
			for range 3 {
				answer, err := tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(c.property), PropertyCount: 1}.Execute(tpm)
				if err != nil {
					t.Fatal(err)
				}
				got := tpm2.Marshal(answer.CapabilityData)
				if first == nil {
					first = got
				}
				if !bytes.Equal(got, first) {
					t.Errorf("another answer: %x", got)
				}
			}
			if got := counted.Count() - before; got != c.asked {
				t.Errorf("asked %d times, want %d", got, c.asked)
			}
		})
	}
	if _, err := Remember(broken{}).Send(make([]byte, 22)); err == nil {
		t.Error("an error was forgotten")
	}
}

type broken struct{}

func (broken) Send([]byte) ([]byte, error) { return nil, errors.New("no such device") }
