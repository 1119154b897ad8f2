package tpmcert

import (
	"strconv"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check of a verification; see [refusal.Check].
type Check = refusal.Check

// Error is a refusal: the check that failed, what was found and what was expected; see
// [refusal.Error].
type Error = refusal.Error

func refuse(check Check, got, want string) error { return &Error{Check: check, Got: got, Want: want} }

// tooLarge refuses too many of something, or too many bytes of it.
func tooLarge(size int, what string, limit int) error {
	return refuse(der.CheckSize, strconv.Itoa(size)+" "+what, "at most "+strconv.Itoa(limit))
}
