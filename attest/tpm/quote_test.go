package tpm

import (
	"slices"
	"testing"
)

func TestDefaultPCRs(t *testing.T) {
	if got := DefaultPCRs()[0].PCRs(); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("got %v", got)
	}
}
