package bootstraptoken

import (
	"errors"
	"io"
	"testing"
)

func TestErrorText(t *testing.T) {
	for _, test := range []struct {
		err  *Error
		want string
	}{
		{nil, "an error that is nil"},
		{&Error{Check: CheckType}, "type"},
		{&Error{Check: CheckType, Got: "a", Want: "b"}, "type: got a, want b"},
		{&Error{Check: CheckType, Want: "b"}, "type: got nothing, want b"},
		{&Error{Check: CheckType, Got: "a", Err: io.EOF}, "type: got a: EOF"},
		{&Error{Check: ErrRetry, Err: io.EOF}, "could not decide, try again: EOF"},
	} {
		t.Run(test.want, func(t *testing.T) {
			if got := test.err.Error(); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestErrorUnwrap(t *testing.T) {
	err := error(&Error{Check: CheckType, Err: &Error{Check: CheckName, Err: io.EOF}})
	for _, target := range []error{CheckType, CheckName, io.EOF} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
	if errors.Is(err, ErrRetry) || errors.Is((*Error)(nil), CheckType) {
		t.Error("an error is what it is not")
	}
}
