package apiserver

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// The texts themselves are held against Kubernetes by the tests of the policy.
func TestStatusError(t *testing.T) {
	for _, tt := range []struct {
		err    *StatusError
		reason StatusReason
		code   int
		also   error
	}{
		{badRequest("x"), reasonBadRequest, 400, nil},
		{notFound("pods", "x"), reasonNotFound, 404, claims.ErrNotFound},
		{conflict("", "Pod", "x", "y"), ReasonConflict, 409, nil},
		{invalid("x", "spec", "1", "y"), reasonInvalid, 422, nil},
		{internal("x", io.EOF), reasonInternalError, 500, io.EOF},
		{internal("x", io.EOF), reasonInternalError, 500, refusal.ErrRetry},
		{programming("x"), reasonInternalError, 500, nil},
	} {
		t.Run(fmt.Sprint(tt.reason), func(t *testing.T) {
			if !errors.Is(tt.err, tt.reason) || tt.err.Code != tt.code || tt.err.Error() != tt.err.Message || tt.err.Message == "" {
				t.Errorf("%+v", tt.err)
			}
			if tt.also != nil && !errors.Is(tt.err, tt.also) {
				t.Errorf("%v: no %v inside", tt.err, tt.also)
			}
			if errors.Is(tt.err, refusal.ErrRetry) != (tt.err.Err != nil && tt.code == 500) {
				t.Errorf("%v: may it be asked again?", tt.err)
			}
		})
	}
	if got := ReasonConflict.Error(); got != "apiserver: status Conflict" {
		t.Error(got)
	}
}
