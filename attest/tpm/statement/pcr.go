package statement

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxPCRs bounds the PCRs of one quote: 32 in each of the four banks that can be accepted.
const maxPCRs = 128

// pcrsPerBank is how many PCRs a bank of a PC Client platform has: TCG PC Client
// Platform TPM Profile 1.05, 5.4.1.
const pcrsPerBank = 24

// Checks of the PCRs that a quote selects, and of the values that come with it.
const (
	// CheckPCRSelection: a quote selects no PCR at all, a bank without PCRs, one bank twice,
	// or PCRs other than those asked for.
	CheckPCRSelection refusal.Check = "pcr-selection"
	// checkPCRBank: a PCR is in a bank whose hash is not accepted.
	checkPCRBank refusal.Check = "pcr-bank"
	// checkPCRValue: a PCR's value is not as long as the digests of its bank.
	checkPCRValue refusal.Check = "pcr-value"
	// checkPCRDuplicate: one PCR is listed twice.
	checkPCRDuplicate refusal.Check = "pcr-duplicate"
	// CheckPCRNotQuoted: the value of a PCR that the quote does not cover is given or asked
	// for.
	CheckPCRNotQuoted refusal.Check = "pcr-not-quoted"
	// checkPCRMissing: the value of a quoted PCR is not given.
	checkPCRMissing refusal.Check = "pcr-missing"
	// checkPCRDigest: the given values are not those whose digest was quoted.
	checkPCRDigest refusal.Check = "pcr-digest"
	// CheckPCRResettable: the value of a PCR that any program can reset is asked for.
	CheckPCRResettable refusal.Check = "pcr-resettable"
)

// PCR is the value of one platform configuration register in one bank.
type PCR struct {
	// Bank is the bank's hash: tpm2.TPMAlgSHA256, SHA384 or SHA512, or SHA1 if that is
	// allowed.
	Bank tpm2.TPMAlgID
	// Index is the register, 0 to 31; PC Client platforms have 0 to 23.
	Index int
	// Value is a digest under the bank's hash: 20, 32, 48 or 64 bytes.
	Value []byte
}

// String returns the bank, the index and the value in hexadecimal, for example "SHA256:7
// a0c4…".
func (p PCR) String() string { return fmt.Sprintf("%s %x", p.ID(), p.Value) }

// ID returns the register without its value.
func (p PCR) ID() PCRID { return PCRID{p.Bank, p.Index} }

// PCRID names a PCR.
type PCRID struct {
	bank  tpm2.TPMAlgID
	index int
}

// String returns the bank and the index, for example "SHA256:7".
func (id PCRID) String() string { return tpmwire.AlgorithmName(id.bank) + ":" + strconv.Itoa(id.index) }

// compare orders as on the wire: by the bank's number, then by index.
func (id PCRID) compare(other PCRID) int {
	return cmp.Or(cmp.Compare(id.bank, other.bank), cmp.Compare(id.index, other.index))
}

// ResettablePCR reports whether any program on the machine can reset a PCR, so that its value
// proves nothing: 16 (debug) and 23 (application support) on a PC Client platform. PCRs 17 to 22
// can be reset too, but from a higher locality: by the hardware's dynamic launch and the program
// that it launched.
func ResettablePCR(index int) bool { return index == 16 || index == 23 }

// NewPCRSelection selects PCRs of one bank, in any order, each 0 to 23. It is an error to
// give no index, an index outside that range, or the same index twice.
func NewPCRSelection(bank tpm2.TPMAlgID, indexes ...int) (PCRSelection, error) {
	s := PCRSelection{Hash: bank, Select: make([]byte, pcrsPerBank/8)}
	switch {
	case tpmwire.HashOf(bank) == 0:
		return PCRSelection{}, checkPCRBank.Refuse(tpmwire.AlgorithmName(bank), "SHA1, SHA256, SHA384 or SHA512")
	case len(indexes) == 0:
		return PCRSelection{}, CheckPCRSelection.Refuse("no PCR", "at least one")
	}
	for _, i := range indexes {
		switch {
		case i < 0 || i >= pcrsPerBank:
			return PCRSelection{}, CheckPCRSelection.Refuse("PCR "+strconv.Itoa(i), "0 to 23")
		case s.selects(i):
			return PCRSelection{}, checkPCRDuplicate.Refuse("PCR "+strconv.Itoa(i)+" twice", "once")
		}
		s.Select[i/8] |= 1 << (i % 8)
	}
	return s, nil
}

func (s PCRSelection) selects(index int) bool {
	return index/8 < len(s.Select) && s.Select[index/8]>>(index%8)&1 == 1
}

// SelectedPCRs lists the selected PCRs in the order in which a TPM digests them: bank by bank
// as listed, ascending within each. It refuses a selection that covers nothing or is
// ambiguous.
func SelectedPCRs(selections []PCRSelection, allowSHA1 bool) ([]PCRID, error) {
	if len(selections) == 0 {
		return nil, CheckPCRSelection.Refuse("no bank", "at least one PCR")
	}
	ids := make([]PCRID, 0, pcrsPerBank)
	for n, s := range selections {
		if err := CheckBank(s.Hash, allowSHA1); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(selections[:n], func(o PCRSelection) bool { return o.Hash == s.Hash }) {
			return nil, CheckPCRSelection.Refuse("bank "+tpmwire.AlgorithmName(s.Hash)+" twice", "once")
		}
		before := len(ids)
		for i := range len(s.Select) * 8 {
			if s.selects(i) {
				ids = append(ids, PCRID{s.Hash, i})
			}
		}
		if len(ids) == before {
			return nil, CheckPCRSelection.Refuse("no PCR of bank "+tpmwire.AlgorithmName(s.Hash), "at least one")
		}
	}
	return ids, nil
}

// CheckBank refuses a bank whose hash is not SHA-256, SHA-384, SHA-512 or, if allowSHA1 is
// set, SHA-1. Errors are a [*refusal.Error] with the check "pcr-bank".
func CheckBank(bank tpm2.TPMAlgID, allowSHA1 bool) error {
	if tpmwire.HashOf(bank) == 0 || bank == tpm2.TPMAlgSHA1 && !allowSHA1 {
		return checkPCRBank.Refuse(tpmwire.AlgorithmName(bank), "SHA256, SHA384 or SHA512")
	}
	return nil
}

// SortedPCRs returns a copy in wire order, and refuses a PCR that is invalid or listed twice.
func SortedPCRs(pcrs []PCR) ([]PCR, error) {
	if len(pcrs) > maxPCRs {
		return nil, CheckPCRSelection.Refuse(strconv.Itoa(len(pcrs))+" PCRs", "at most "+strconv.Itoa(maxPCRs))
	}
	sorted := slices.Clone(pcrs)
	slices.SortFunc(sorted, func(a, b PCR) int { return a.ID().compare(b.ID()) })
	for n, p := range sorted {
		if err := p.Check(); err != nil {
			return nil, err
		}
		if n > 0 && p.ID() == sorted[n-1].ID() {
			return nil, checkPCRDuplicate.Refuse(p.ID().String()+" twice", "once")
		}
	}
	return sorted, nil
}

// Check checks that the bank, the index and the size of the value are valid and fit together.
func (p PCR) Check() error {
	switch h := tpmwire.HashOf(p.Bank); {
	case h == 0:
		return checkPCRBank.Refuse(tpmwire.AlgorithmName(p.Bank), "SHA1, SHA256, SHA384 or SHA512")
	case p.Index < 0 || p.Index >= 8*tpmwire.MaxPCRSelectSize:
		return CheckPCRSelection.Refuse(p.ID().String(), "0 to 31")
	case len(p.Value) != h.Size():
		return checkPCRValue.Refuse(p.ID().String()+" of "+strconv.Itoa(len(p.Value))+" bytes", strconv.Itoa(h.Size()))
	}
	return nil
}

// valueOf returns the value of a PCR among sorted ones, or nil.
func valueOf(sorted []PCR, id PCRID) []byte {
	n, found := slices.BinarySearchFunc(sorted, id, func(p PCR, id PCRID) int { return p.ID().compare(id) })
	if !found {
		return nil
	}
	return sorted[n].Value
}

// samePCRs reports whether two lists name the same PCRs, whatever their order.
func samePCRs(a, b []PCRID) bool {
	return slices.Equal(slices.SortedFunc(slices.Values(a), PCRID.compare), slices.SortedFunc(slices.Values(b), PCRID.compare))
}

// Equal reports whether both are the same PCR with the same value.
func (p PCR) Equal(o PCR) bool { return p.ID() == o.ID() && bytes.Equal(p.Value, o.Value) }

// namesOfPCRs lists PCRs for an error message.
func namesOfPCRs(ids []PCRID) string { return strings.Trim(fmt.Sprint(ids), "[]") }
