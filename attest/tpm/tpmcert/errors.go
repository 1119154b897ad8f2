package tpmcert

import (
	"strconv"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check of a verification; see [refusal.Check].
type Check = refusal.Check

// Error is a refusal: the check that failed, and what was found where what was expected;
// see [refusal.Error].
type Error = refusal.Error

func refuse(check Check, got, want string) error { return &Error{Check: check, Got: got, Want: want} }

// tooLarge says of what there are too many, or too many bytes.
func tooLarge(size int, what string, limit int) error {
	return refuse(der.CheckSize, strconv.Itoa(size)+" "+what, "at most "+strconv.Itoa(limit))
}
