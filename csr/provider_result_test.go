package csr_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

// TestAttestedCheckOtherObject has a provider answer with a result that is good, for an
// object that differs from the one in question in a single thing.
func TestAttestedCheckOtherObject(t *testing.T) {
	for name, change := range map[string]func(*csr.Request){
		"signer":    func(r *csr.Request) { r.Spec.SignerName = csr.SignerKubeAPIServerClientKubelet },
		"requester": func(r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "zzz999" },
		"UID":       func(r *csr.Request) { r.Metadata.UID = "another object" },
		"no UID":    func(r *csr.Request) { r.Metadata.UID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.request.Metadata.UID = "this object"
			checked := f.mustCheck(t)
			good := goodVerified(checked)
			if err := good.Check(f.request.Parsed()); err != nil {
				t.Fatalf("the request itself: %v", err)
			}
			other := *f.request
			change(&other)
			if err := good.Check(other.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("its result for the other: got %v, want %v", err, csr.CheckProviderResult)
			}
			// The object is the caller's: what counts is how it was checked.
			change(f.request)
			if err := good.Check(f.request.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("an object that became the other: got %v, want %v", err, csr.CheckProviderResult)
			}
		})
	}
}

// nameless is a provider that verifies and does not know its machine.
type nameless struct{ *fakeProvider }

func (nameless) MachineName(context.Context, *csr.Attested) (string, error) { return "", nil }

func TestVerifyNeedsMachineName(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	provider := nameless{&fakeProvider{policy: f.policy}}
	accepted, err := csr.Verify(t.Context(), provider, f.request)
	if accepted != nil || !errors.Is(err, csr.CheckProviderResult) || csr.Decide(err).Verdict != csr.VerdictDeny {
		t.Errorf("got %+v, %v, want %v", accepted, err, csr.CheckProviderResult)
	}
}

// TestInventoryNameOfNothing: each part of a result is needed.
func TestInventoryNameOfNothing(t *testing.T) {
	for name, a := range map[string]*csr.Attested{
		"nil":               nil,
		"nothing":           {},
		"checked by nobody": new(csr.Checked).Vouch("x", csr.Grant{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := a.InventoryName(); got != "" || !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("got %q, %v, want %v", got, err, csr.CheckProviderResult)
			}
		})
	}
}
