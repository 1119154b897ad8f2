package tpmcert

import (
	"errors"

	"github.com/nodeattest/nodeattest/refusal"
)

// hasCheck reports whether the error is a refusal of one check.
func hasCheck(err error) bool {
	_, ok := errors.AsType[*refusal.Error](err)
	return ok
}
