package bootstraptoken

import (
	"errors"
	"io"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestErrorText(t *testing.T) {
	for _, test := range []struct {
		err  *Error
		want string
	}{
		{nil, "an error that is nil"},
		{&Error{Check: checkType}, "type"},
		{&Error{Check: checkType, Got: "a", Want: "b"}, "type: got a, want b"},
		{&Error{Check: checkType, Want: "b"}, "type: got nothing, want b"},
		{&Error{Check: checkType, Got: "a", Err: io.EOF}, "type: got a: EOF"},
		{&Error{Check: refusal.ErrRetry, Err: io.EOF}, "could not decide, try again: EOF"},
	} {
		t.Run(test.want, func(t *testing.T) {
			if got := test.err.Error(); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestErrorUnwrap(t *testing.T) {
	err := error(&Error{Check: checkType, Err: &Error{Check: checkName, Err: io.EOF}})
	for _, target := range []error{checkType, checkName, io.EOF} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
	if errors.Is(err, refusal.ErrRetry) || errors.Is((*Error)(nil), checkType) {
		t.Error("an error is what it is not")
	}
}
