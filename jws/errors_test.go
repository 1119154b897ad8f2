package jws

import (
	"errors"
	"io"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestErrorText(t *testing.T) {
	for want, err := range map[string]*Error{
		"jws-signature":                         {Check: checkSignature},
		"algorithm: got none, want ES256":       {Check: CheckAlgorithm, Got: "none", Want: "ES256"},
		"key-id: got nothing, want k":           {Check: CheckKeyID, Want: "k"},
		"header: got x":                         {Check: CheckHeader, Got: "x"},
		"base64url: got the header: EOF":        {Check: checkBase64, Got: "the header", Err: io.EOF},
		"could not decide, try again: EOF":      {Check: refusal.ErrRetry, Err: io.EOF},
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
	err := error(&Error{Check: checkBase64, Err: io.EOF})
	if !errors.Is(err, checkBase64) || !errors.Is(err, io.EOF) || errors.Is(err, CheckHeader) {
		t.Error("the check or its cause is not found")
	}
	if err := (*Error)(nil); err.Unwrap() != nil {
		t.Error("a nil error holds something")
	}
	if !errors.Is(error(&Error{Check: checkKey}), checkKey) {
		t.Error("the check is not found")
	}
}
