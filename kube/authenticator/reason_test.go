package authenticator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestReason: a reason is one of the program's own, whatever another account has written.
func TestReason(t *testing.T) {
	deny := func(reason string) error {
		return fmt.Errorf("as a node: %w", &deniedError{condition: certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied, Reason: reason}})
	}
	for want, err := range map[string]error{
		"":                nil,
		"NotAMember":      deny("NotAMember"),
		"MachineUnknown":  &versionError{error: deny("MachineUnknown")},
		"OtherDenial":     deny("Made\"Up1"),
		"NoCredential":    &refusal.Error{Check: checkCredential, Got: "nothing"},
		"TryAgain":        refusal.Retry(errors.New("no answer")),
		"Timeout":         fmt.Errorf("a: %w", context.DeadlineExceeded),
		"Unauthorized":    apierrors.NewUnauthorized("foreign text"),
		"Forbidden":       apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("foreign text")),
		"TooManyRequests": apierrors.NewTooManyRequests("foreign text", 1),
		"Unreachable":     &net.OpError{Op: "dial", Err: errors.New("refused")},
		"Other":           errors.New("foreign text"),
	} {
		if got := reason(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

// TestCounts: each attempt that ends is counted by its result, and the counts outlast a certificate.
func TestCounts(t *testing.T) {
	a, _ := newNode(t, newFakeAPI(t), nil)
	s := a.slots[0]
	for _, row := range []struct {
		err            error
		result, reason string
	}{
		{&deniedError{condition: certificatesv1.CertificateSigningRequestCondition{Reason: "NotAMember"}}, "denied", "NotAMember"},
		{errors.New("foreign text"), "failed", "Other"}, {nil, "obtained", ""}, {nil, "obtained", ""}, {context.DeadlineExceeded, "failed", "Timeout"},
	} {
		if err := a.begin(nil, s); err != nil {
			t.Fatal(err)
		}
		if c := a.Status().Certificates[0]; c.LastResult != "unfinished" || c.LastReason != "Unfinished" {
			t.Errorf("before its end: %+v", c)
		}
		if err := a.end(nil, s, "", row.err); err != nil {
			t.Fatal(err)
		}
		if c := a.Status().Certificates[0]; c.LastResult != row.result || c.LastReason != row.reason {
			t.Errorf("%v: got %s, %s", row.err, c.LastResult, c.LastReason)
		}
	}
	if c := a.Status().Certificates[0]; c.Obtained != 2 || c.Denied != 1 || c.Failed != 2 || c.Failures != 1 {
		t.Errorf("got %+v", c)
	}
}
