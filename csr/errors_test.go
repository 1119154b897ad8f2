package csr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestViolationText(t *testing.T) {
	for want, v := range map[string]*Violation{
		"bundle-size":                        {Check: RuleBundleSize},
		"bundle-size: got 0 bytes":           {Check: RuleBundleSize, Got: "0 bytes"},
		"bundle-size: got nothing, want one": {Check: RuleBundleSize, Want: "one"},
		"bundle-size: got a, want b: EOF":    {Check: RuleBundleSize, Got: "a", Want: "b", Err: io.EOF},
		"bundle-size: EOF":                   {Check: RuleBundleSize, Err: io.EOF},
		"an error that is nil":               nil,
	} {
		if got := v.Error(); got != want {
			t.Errorf("error reads %q, want %q", got, want)
		}
	}
}

func TestViolationsAreFound(t *testing.T) {
	first := &Violation{Check: RuleBundleSize, Got: "a"}
	second := &Violation{Check: RuleBase64, Got: "b", Err: io.EOF}
	err := fmt.Errorf("while testing: %w", Violations{first, second})
	for _, target := range []error{RuleBundleSize, RuleBase64, io.EOF} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not found in %v", target, err)
		}
	}
	if errors.Is(err, RuleBlockOrder) || errors.Is(err, ErrRetry) || errors.Is(first, RuleBase64) {
		t.Error("a rule is found that is not broken")
	}
	var all Violations
	if !errors.As(err, &all) || len(all) != 2 {
		t.Errorf("violations %v", all)
	}
	var v *Violation
	if !errors.As(err, &v) || v != first {
		t.Errorf("violation %v", v)
	}
	if got, want := all.Error(), "bundle-size: got a; bundle-base64: got b: EOF"; got != want {
		t.Errorf("error reads %q, want %q", got, want)
	}
	if RuleBase64.Error() != "bundle-base64" {
		t.Errorf("rule reads %q", RuleBase64.Error())
	}
}

func TestRetry(t *testing.T) {
	if err := Retry(nil); err != nil {
		t.Errorf("Retry(nil) = %v", err)
	}
	err := Retry(context.DeadlineExceeded)
	if !errors.Is(err, ErrRetry) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not both", err)
	}
	if got, want := err.Error(), "could not decide, try again: context deadline exceeded"; got != want {
		t.Errorf("error reads %q, want %q", got, want)
	}
	if errors.Is(errors.New("another"), ErrRetry) {
		t.Error("any error is a retry")
	}
}
