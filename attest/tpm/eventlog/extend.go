package eventlog

import (
	"bytes"

	_ "crypto/sha1"   // the banks' hashes, by number
	_ "crypto/sha256" //
	_ "crypto/sha512" //

	"github.com/google/go-tpm/tpm2"
)

// typeNoAction is EV_NO_ACTION: an event that extends nothing.
const typeNoAction Type = 3

// digest is nil for an unknown bank.
func digest(bank tpm2.TPMAlgID, data []byte) []byte {
	switch bank {
	case tpm2.TPMAlgSHA1, tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384, tpm2.TPMAlgSHA512:
		h := hash(bank).New()
		h.Write(data)
		return h.Sum(nil)
	}
	return nil
}

// explains reports whether the events of one PCR, extended one after the other from
// a value that a reset gives, lead to value.
func explains(events []Event, bank tpm2.TPMAlgID, index int, value []byte) bool {
	size := hash(bank).Size()
	for _, start := range startValues(index, size) {
		if bytes.Equal(extendAll(start, bank, events), value) {
			return true
		}
	}
	return false
}

func extendAll(value []byte, bank tpm2.TPMAlgID, events []Event) []byte {
	h := hash(bank).New()
	for _, e := range events {
		if len(e.Digest) != h.Size() {
			return nil
		}
		h.Reset()
		h.Write(value)
		h.Write(e.Digest)
		value = h.Sum(nil)
	}
	return value
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
