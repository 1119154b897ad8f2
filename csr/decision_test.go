package csr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// reasonError is a refusal of another package.
type reasonError struct {
	reason string
	cause  error
}

func (e *reasonError) Error() string      { return "refused by another package" }
func (e *reasonError) DenyReason() string { return e.reason }
func (e *reasonError) Unwrap() error      { return e.cause }

func TestDecide(t *testing.T) {
	violation := &csr.Error{Check: csr.CheckSubjectCommonName, Got: "x", Want: "y"}
	cause := errors.New("cause")
	for _, c := range []struct {
		name    string
		err     error
		verdict csr.Verdict
		reason  string
	}{
		{"nil", nil, csr.VerdictRetry, csr.ReasonRetry},
		{"violation", violation, csr.VerdictDeny, "SubjectCommonName"},
		{"wrapped violation", fmt.Errorf("x: %w", violation), csr.VerdictDeny, "SubjectCommonName"},
		{"violations", csr.Errors{violation, {Check: csr.CheckUsages}}, csr.VerdictDeny, "SubjectCommonName"},
		{"violation and retry", errors.Join(refusal.Retry(cause), violation), csr.VerdictDeny, "SubjectCommonName"},
		{"violation with a plain cause", &csr.Error{Check: csr.CheckUsages, Err: cause}, csr.VerdictDeny, "Usages"},
		{"violation because of a timeout", &csr.Error{Check: csr.CheckUsages, Err: context.DeadlineExceeded}, csr.VerdictRetry, csr.ReasonRetry},
		{"that, and another", csr.Errors{{Check: csr.CheckUsages, Err: refusal.ErrRetry}, violation}, csr.VerdictDeny, "SubjectCommonName"},
		{"retry", refusal.Retry(cause), csr.VerdictRetry, csr.ReasonRetry},
		{"retry because of a violation", refusal.Retry(violation), csr.VerdictRetry, csr.ReasonRetry},
		{"retry alone", refusal.ErrRetry, csr.VerdictRetry, csr.ReasonRetry},
		{"cancelled", context.Canceled, csr.VerdictRetry, csr.ReasonRetry},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), csr.VerdictRetry, csr.ReasonRetry},
		{"unknown", cause, csr.VerdictRetry, csr.ReasonRetry},
		{"no violations", csr.Errors{}, csr.VerdictRetry, csr.ReasonRetry},
		{"nil violation", error((*csr.Error)(nil)), csr.VerdictRetry, csr.ReasonRetry},
		{"nil violation, wrapped", fmt.Errorf("x: %w", error((*csr.Error)(nil))), csr.VerdictRetry, csr.ReasonRetry},
		{"nil violation among others", csr.Errors{violation, nil}, csr.VerdictDeny, "SubjectCommonName"},
		{"nil violation alone", csr.Errors{nil}, csr.VerdictRetry, csr.ReasonRetry},
		{"other signer", &csr.Error{Check: csr.CheckSignerName, Err: refusal.Retry(csr.ErrOtherSigner)}, csr.VerdictIgnore, csr.ReasonIgnored},
		{"other signer's certificate", fmt.Errorf("%w: x", csr.ErrOtherSigner), csr.VerdictIgnore, csr.ReasonIgnored},
		{"closed", csr.Errors{{Check: csr.CheckRequestClosed}}, csr.VerdictIgnore, csr.ReasonIgnored},
		{"closed, and broken", csr.Errors{{Check: csr.CheckRequestClosed}, violation}, csr.VerdictIgnore, csr.ReasonIgnored},
		{"broken, and closed", errors.Join(violation, &csr.Error{Check: csr.CheckRequestClosed}), csr.VerdictIgnore, csr.ReasonIgnored},
		{"closed, and undecided", errors.Join(refusal.Retry(cause), &csr.Error{Check: csr.CheckRequestClosed}), csr.VerdictIgnore, csr.ReasonIgnored},
		{"refused because of a configuration", &csr.Error{Check: csr.CheckUsages, Err: refusal.Config("Field", "", "")}, csr.VerdictRetry, csr.ReasonRetry},
		{"a configuration", fmt.Errorf("x: %w", refusal.Config("Field", "", "")), csr.VerdictRetry, csr.ReasonRetry},
		{"a configuration because of a refusal", &csr.Error{Check: refusal.CheckConfig, Err: violation}, csr.VerdictRetry, csr.ReasonRetry},
		{"other package, configuration", &reasonError{reason: "CheckMagic", cause: refusal.Config("Field", "", "")}, csr.VerdictRetry, csr.ReasonRetry},
		{"a rule without a violation", csr.CheckUsages, csr.VerdictRetry, csr.ReasonRetry},
		{"other package", &reasonError{reason: "CheckMagic"}, csr.VerdictDeny, "CheckMagic"},
		{"other package, wrapped", fmt.Errorf("x: %w", &reasonError{reason: "CheckMagic", cause: cause}), csr.VerdictDeny, "CheckMagic"},
		{"other package, undecided", &reasonError{reason: "CheckMagic", cause: refusal.Retry(cause)}, csr.VerdictRetry, csr.ReasonRetry},
		{"reason with other characters", &reasonError{reason: "1 not-a word\n"}, csr.VerdictDeny, "notaword"},
		{"reason of none that count", &reasonError{reason: "0 -"}, csr.VerdictDeny, csr.ReasonRefused},
		{"long reason", &reasonError{reason: strings.Repeat("A", 1000)}, csr.VerdictDeny, strings.Repeat("A", csr.MaxReasonSize)},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := csr.Decide(c.err)
			if d.Verdict != c.verdict || d.Reason != c.reason || d.Message == "" && len(c.name) > 0 && c.name != "no violations" {
				t.Errorf("got %+v, want %v %s", d, c.verdict, c.reason)
			}
		})
	}
}

func TestDecisionMessageIsBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("ä", 5000), strings.Repeat("\x00\n\x1b[31m", 5000), strings.Repeat("\xff", 5000), "a\nb\u202ec"} {
		d := csr.Decide(&csr.Error{Check: csr.CheckUsages, Got: text})
		if len(d.Message) > csr.MaxMessageSize || !utf8.ValidString(d.Message) || strings.ContainsAny(d.Message, "\n\x00\x1b\u202e\ufffd") {
			t.Errorf("message of %d bytes: %.60q", len(d.Message), d.Message)
		}
	}
	d := csr.Decide(errors.New(strings.Repeat("x", csr.MaxMessageSize+1)))
	if !strings.HasSuffix(d.Message, " ...") {
		t.Errorf("a cut message ends with %q", d.Message[len(d.Message)-8:])
	}
}

func TestVerdictZeroDecidesNothing(t *testing.T) {
	if v := (csr.Decision{}).Verdict; v != csr.VerdictRetry {
		t.Errorf("got %v", v)
	}
	for v, want := range map[csr.Verdict]string{csr.VerdictRetry: "retry", csr.VerdictDeny: "deny", csr.VerdictApprove: "approve",
		csr.VerdictIgnore: "ignore", csr.VerdictFail: "fail", csr.VerdictFail + 1: "verdict(5)", -1: "verdict(-1)"} {
		if got := v.String(); got != want {
			t.Errorf("got the name %q, want %q", got, want)
		}
	}
}

// What names other nodes and machines is not written where every holder of a bootstrap token
// can read it; the log gets the whole.
func TestDecisionHides(t *testing.T) {
	other := &csr.Error{Check: csr.CheckUsages, Got: "machine-7"}
	for _, c := range []struct {
		err    error
		hidden bool
	}{
		{&csr.Error{Check: csr.CheckMachineOtherNode, Got: "machine-7"}, true},
		{&csr.Error{Check: csr.CheckMachineNotReady, Got: "machine-7"}, true},
		{&csr.Error{Check: csr.CheckProviderIDMismatch, Want: "machine-7"}, true},
		{&csr.Error{Check: csr.CheckProviderIDNotVouched, Want: "machine-7"}, true},
		{&csr.Error{Check: csr.CheckSANNotOwn, Want: "machine-7"}, true},
		{&csr.Error{Check: csr.CheckCredential, Got: "machine-7"}, true},
		{&csr.Error{Check: csr.CheckInheritedMachine, Got: "machine-7"}, true},
		{&csr.Error{Check: csr.CheckInheritedNode, Got: "machine-7"}, true},
		{csr.Errors{other, {Check: csr.CheckSANNotOwn}}, true},
		{fmt.Errorf("machine-7: %w", &csr.Error{Check: csr.CheckUsages, Got: "machine-7", Err: csr.Errors{{Check: csr.CheckSANNotOwn}}}), true},
		{other, false},
		{csr.Errors{other, {Check: csr.CheckSubjectCommonName}}, false},
	} {
		t.Run(fmt.Sprint(c.hidden), func(t *testing.T) {
			d := csr.Decide(c.err).For(&csr.Request{})
			if d.Verdict != csr.VerdictDeny || strings.Contains(d.Message, "machine-7") == c.hidden || (d.Detail != "") != c.hidden {
				t.Errorf("%v: got %+v", c.err, d)
			}
			if c.hidden && d.Detail != c.err.Error() {
				t.Errorf("%v: got the detail %q", c.err, d.Detail)
			}
		})
	}
	d := csr.Decide(csr.Errors{other, {Check: csr.CheckSANNotOwn, Got: strings.Repeat("x", 9000)}})
	if !strings.HasPrefix(d.Message, "usages, san-not-own; ") || len(d.Detail) > csr.MaxMessageSize {
		t.Errorf("got %q", d.Message)
	}
}
