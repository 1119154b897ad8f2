package csr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestViolationText(t *testing.T) {
	for want, v := range map[string]*Error{
		"bundle-size":                        {Check: checkBundleSize},
		"bundle-size: got 0 bytes":           {Check: checkBundleSize, Got: "0 bytes"},
		"bundle-size: got nothing, want one": {Check: checkBundleSize, Want: "one"},
		"bundle-size: got a, want b: EOF":    {Check: checkBundleSize, Got: "a", Want: "b", Err: io.EOF},
		"bundle-size: EOF":                   {Check: checkBundleSize, Err: io.EOF},
		"an error that is nil":               nil,
	} {
		t.Run(want, func(t *testing.T) {
			if got := v.Error(); got != want {
				t.Errorf("error reads %q, want %q", got, want)
			}
		})
	}
}

func TestViolationsAreFound(t *testing.T) {
	first := &Error{Check: checkBundleSize, Got: "a"}
	second := &Error{Check: checkBase64, Got: "b", Err: io.EOF}
	err := fmt.Errorf("while testing: %w", Errors{first, second})
	for _, target := range []error{checkBundleSize, checkBase64, io.EOF} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not found in %v", target, err)
		}
	}
	if errors.Is(err, checkBlock) || errors.Is(err, refusal.ErrRetry) || errors.Is(first, checkBase64) {
		t.Error("a rule is found that is not broken")
	}
	var all Errors
	if !errors.As(err, &all) || len(all) != 2 {
		t.Errorf("violations %v", all)
	}
	var v *Error
	if !errors.As(err, &v) || v != first {
		t.Errorf("violation %v", v)
	}
	if got, want := all.Error(), "bundle-size: got a; bundle-base64: got b: EOF"; got != want {
		t.Errorf("error reads %q, want %q", got, want)
	}
	if checkBase64.Error() != "bundle-base64" {
		t.Errorf("rule reads %q", checkBase64.Error())
	}
}

func TestRetry(t *testing.T) {
	if err := refusal.Retry(nil); err != nil {
		t.Errorf("refusal.Retry(nil) = %v", err)
	}
	err := refusal.Retry(context.DeadlineExceeded)
	if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not both", err)
	}
	if got, want := err.Error(), "could not decide, try again: context deadline exceeded"; got != want {
		t.Errorf("error reads %q, want %q", got, want)
	}
	if errors.Is(errors.New("another"), refusal.ErrRetry) {
		t.Error("any error is a retry")
	}
}
