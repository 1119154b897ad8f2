package tpmcert

import (
	"strconv"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/refusal"
)

func refuse(check refusal.Check, got, want string) error {
	return &refusal.Error{Check: check, Got: got, Want: want}
}

// tooLarge refuses too many of something, or too many bytes of it.
func tooLarge(size int, what string, limit int) error {
	return refuse(der.CheckSize, strconv.Itoa(size)+" "+what, "at most "+strconv.Itoa(limit))
}
