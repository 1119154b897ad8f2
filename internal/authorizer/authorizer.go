// Package authorizer checks who decides about membership before anyone is asked.
package authorizer

import (
	"errors"

	"github.com/nodeattest/nodeattest/internal/typednil"
)

// Check returns an error if an authorizer is nil, a nil pointer or a nil function, or if it
// has a method CheckAuthorizer for what is open that returns one.
func Check[Open any](authorizer any, open Open) error {
	if typednil.Is(authorizer) {
		return errors.New("no Authorizer, or a nil one")
	}
	if c, ok := authorizer.(interface{ CheckAuthorizer(open Open) error }); ok {
		return c.CheckAuthorizer(open)
	}
	return nil
}
