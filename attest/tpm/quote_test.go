package tpm

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

func TestNewPCRSelection(t *testing.T) {
	s, err := statement.NewPCRSelection(tpm2.TPMAlgSHA256, 23, 0, 7)
	if err != nil || !bytes.Equal(s.Select, []byte{0x81, 0, 0x80}) {
		t.Errorf("%x, %v", s.Select, err)
	}
	for _, c := range []struct {
		bank    tpm2.TPMAlgID
		indexes []int
		want    Check
	}{
		{tpm2.TPMAlgSHA256, nil, statement.CheckPCRSelection},
		{tpm2.TPMAlgSHA256, []int{24}, statement.CheckPCRSelection},
		{tpm2.TPMAlgSHA256, []int{-1}, statement.CheckPCRSelection},
		{tpm2.TPMAlgSHA256, []int{3, 3}, statement.CheckPCRDuplicate},
		{tpm2.TPMAlgSM3256, []int{3}, statement.CheckPCRBank},
	} {
		_, err := statement.NewPCRSelection(c.bank, c.indexes...)
		expectCheck(t, err, c.want)
	}
	if got := DefaultPCRs()[0].PCRs(); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("default %v", got)
	}
}
