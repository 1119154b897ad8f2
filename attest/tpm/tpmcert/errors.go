package tpmcert

import (
	"errors"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/der"
)

// errNotMade: nothing is decided by a verifier that was not made.
var errNotMade = errors.New("tpmcert: a verifier that NewAKVerifier or NewEKVerifier did not make")

// tooLarge refuses too many of something, or too many bytes of it.
func tooLarge(size int, what string, limit int) error {
	return der.CheckSize.Refuse(strconv.Itoa(size)+" "+what, "at most "+strconv.Itoa(limit))
}
