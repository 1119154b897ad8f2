package membership

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

var documentScope = Scope{Provider: "cloud", Road: attest.RoadDocument}

// documented is an answer with a document, with a key of its own.
func documented(t testing.TB, class csr.RequesterClass) *attest.Result {
	r := inventoried(t, answerOf(t, "node-1", "cloud:1"), class, csr.Machine{Name: "m", UID: "uid-1"})
	r.Provider, r.Road, r.Machine = documentScope.Provider, documentScope.Road, "cloud:1"
	return r
}

// A machine that is bound by documents gets no second key for a bootstrap token, until its
// last certificate has ended.
func TestFirstUseDocument(t *testing.T) {
	f := newFirstUse(t, documentScope)
	first, second := documented(t, csr.RequesterBootstrap), documented(t, csr.RequesterBootstrap)
	f.admit(t, first)
	f.admit(t, first) // again, as a signer that looks for itself asks
	f.at = f.at.Add(time.Hour)
	f.refuse(t, second, CheckRegistryRequester)
	f.refuse(t, second, CheckRegistryRequester)
	f.admit(t, first)

	renewed := documented(t, csr.RequesterNode)
	f.admit(t, renewed)
	f.refuse(t, first, CheckRegistryRequester)
	record, err := f.registry.Lookup(t.Context(), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	f.at = record.LastEnd
	f.refuse(t, second, CheckRegistryRequester)
	f.at = f.at.Add(time.Second)
	f.admit(t, second)
	f.refuse(t, first, CheckRegistryRequester)

	// A hello is none's yet.
	hello := documented(t, csr.RequesterBootstrap)
	hello.Stage = attest.StageHello
	f.admit(t, hello)
}

// What an operator does frees the name for a new key.
func TestFirstUseDocumentReleased(t *testing.T) {
	f := newFirstUse(t, documentScope)
	f.admit(t, documented(t, csr.RequesterBootstrap))
	record, err := f.registry.Lookup(t.Context(), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.registry.Rebind(t.Context(), record, "cloud:2"); err != nil {
		t.Fatal(err)
	}
	replaced := documented(t, csr.RequesterBootstrap)
	f.refuse(t, replaced, CheckRegistryName)
	replaced.Machine = "cloud:2"
	f.admit(t, replaced)
	other := documented(t, csr.RequesterBootstrap)
	other.Machine = "cloud:2"
	f.refuse(t, other, CheckRegistryRequester)
	if err := f.registry.Release(t.Context(), "node-1", "uid-1"); err != nil {
		t.Fatal(err)
	}
	f.refuse(t, other, CheckRegistryResting)
}

// Two keys of one machine at once: one of them is the node's.
func TestFirstUseDocumentRace(t *testing.T) {
	f := newFirstUse(t, documentScope)
	first, second := documented(t, csr.RequesterBootstrap), documented(t, csr.RequesterBootstrap)
	quicker := attest.AuthorizerFunc(func(ctx context.Context, r *attest.Result, request *csr.Request) (*attest.Authorization, error) {
		a, err := f.Authorize(ctx, r, request) // has looked, and not written
		if _, err := asked(t, f, first); err != nil {
			t.Error(err)
		}
		return a, err
	})
	if _, err := asked(t, quicker, second); !errors.Is(err, CheckRegistryRequester) || !errors.Is(err, attest.CheckMembership) {
		t.Error(err)
	}
	f.admit(t, first)
	f.refuse(t, second, CheckRegistryRequester)
}

// TPMs prove which machine they are, and come back with other keys as they like.
func TestFirstUseTPMRejoins(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.admit(t, answerOf(t, "node-1", "gce:p/1"))
	f.admit(t, answerOf(t, "node-1", "gce:p/1"))
	record, err := f.registry.Lookup(t.Context(), "node-1")
	if err != nil || record.KeyHash != [32]byte{} {
		t.Errorf("%+v, %v", record, err)
	}
}

// forgetful is a registry that keeps no key.
type forgetful struct{ Registry }

func (r forgetful) Raise(ctx context.Context, record *Record, lastEnd time.Time) (*Record, error) {
	forgotten := *record
	forgotten.KeyHash = [32]byte{}
	return r.Registry.Raise(ctx, &forgotten, lastEnd)
}

func TestFirstUseDocumentForgotten(t *testing.T) {
	f := newFirstUse(t, documentScope)
	f.c.Registry = forgetful{f.registry}
	if _, err := asked(t, f, documented(t, csr.RequesterBootstrap)); !errors.Is(err, csr.ErrRetry) {
		t.Errorf("got %v, want a fault of the registry", err)
	}
}

func TestFirstUseDocumentKinds(t *testing.T) {
	f := newFirstUse(t, documentScope)
	open := []attest.OpenRoad{{Provider: "cloud", Road: attest.RoadDocument, Identities: []string{"cloud"}}}
	if err := f.CheckAuthorizer(open); err != nil {
		t.Error(err)
	}
	open[0].ManyIdentities = "documents of every customer's machines"
	if err := f.CheckAuthorizer(open); !errors.Is(err, CheckRegistryScope) {
		t.Errorf("got %v, want %s", err, CheckRegistryScope)
	}
}
