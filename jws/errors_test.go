package jws

import (
	"errors"
	"io"
	"testing"
)

func TestErrorText(t *testing.T) {
	for want, err := range map[string]*Error{
		"signature":                             {Check: CheckSignature},
		"algorithm: got none, want ES256":       {Check: CheckAlgorithm, Got: "none", Want: "ES256"},
		"key-id: got nothing, want k":           {Check: CheckKeyID, Want: "k"},
		"header: got x":                         {Check: CheckHeader, Got: "x"},
		"base64url: got the header: EOF":        {Check: CheckBase64, Got: "the header", Err: io.EOF},
		"could not decide, try again: EOF":      {Check: ErrRetry, Err: io.EOF},
		`key-id: got a\nb\x1b[31m"\xff, want é`: {Check: CheckKeyID, Got: "a\nb\x1b[31m\"\xff", Want: "é"},
		"an error that is nil":                  nil,
	} {
		t.Run(want, func(t *testing.T) {
			got := err.Error()
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestErrorUnwrap(t *testing.T) {
	err := error(&Error{Check: CheckBase64, Err: io.EOF})
	if !errors.Is(err, CheckBase64) || !errors.Is(err, io.EOF) || errors.Is(err, CheckHeader) {
		t.Error("the check or its cause is not found")
	}
	if err := (*Error)(nil); err.Unwrap() != nil {
		t.Error("a nil error holds something")
	}
	if !errors.Is(error(&Error{Check: CheckKey}), CheckKey) {
		t.Error("the check is not found")
	}
}
