package tpmcert

import (
	"errors"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/refusal"
)

// errNotMade: nothing is decided by a verifier that was not made.
var errNotMade = errors.New("tpmcert: a verifier that NewAKVerifier or NewEKVerifier did not make")

func refuse(check refusal.Check, got, want string) error {
	return &refusal.Error{Check: check, Got: got, Want: want}
}

// tooLarge refuses too many of something, or too many bytes of it.
func tooLarge(size int, what string, limit int) error {
	return refuse(der.CheckSize, strconv.Itoa(size)+" "+what, "at most "+strconv.Itoa(limit))
}
