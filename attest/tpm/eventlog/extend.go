package eventlog

import (
	"bytes"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// typeNoAction is EV_NO_ACTION: an event that extends nothing.
const typeNoAction Type = 3

// digest is nil for an unknown bank.
func digest(bank tpm2.TPMAlgID, data []byte) []byte {
	return tpmwire.AppendDigest(nil, tpmwire.HashOf(bank), data)
}

// explains reports whether the events of one PCR, extended one after the other from
// a value that a reset gives, lead to value.
func explains(events []Event, bank tpm2.TPMAlgID, index int, value []byte) bool {
	for _, reached := range startValues(index, len(value)) {
		for _, e := range events {
			if len(e.Digest) != len(value) {
				return false
			}
			reached = digest(bank, slices.Concat(reached, e.Digest))
		}
		if bytes.Equal(reached, value) {
			return true
		}
	}
	return false
}

// startValues are the values that a PCR can have after a reset of the machine: TCG PC
// Client Platform TPM Profile 1.05, 5.4.1. All bits are zero; PCR 0 ends with the locality
// of TPM2_Startup (0, 3 or 4 where a hardware measurement came first); those of the
// dynamic launch have all bits set until there is one.
func startValues(index, size int) [][]byte {
	zero := make([]byte, size)
	switch {
	case index == 0:
		three, four := make([]byte, size), make([]byte, size)
		three[size-1], four[size-1] = 3, 4
		return [][]byte{zero, three, four}
	case index >= 17 && index <= 22:
		return [][]byte{zero, bytes.Repeat([]byte{0xff}, size)}
	}
	return [][]byte{zero}
}
