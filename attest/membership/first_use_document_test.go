package membership

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

var documentScope = Scope{Provider: "cloud", Road: attest.RoadDocument}

// documented is an answer with a document, with a key of its own.
func documented(t testing.TB, class csr.RequesterClass) *attest.Result {
	r := inventoried(t, answerOf(t, "node-1", "cloud:1"), class, csr.Machine{Name: "m", UID: "uid-1"})
	r.Provider, r.Road, r.Machine = documentScope.Provider, documentScope.Road, "cloud:1"
	return r
}

// A machine that is bound by documents gets no second key for a bootstrap token, not even after
// its last certificate has ended: a pod on it may have kept the node from renewing. It comes back
// with its own key, and after a release with any.
func TestFirstUseDocument(t *testing.T) {
	f := newFirstUse(t, documentScope)
	first, second := documented(t, csr.RequesterBootstrap), documented(t, csr.RequesterBootstrap)
	f.admit(t, first)
	f.admit(t, first) // again, as a signer that looks for itself asks
	f.at = f.at.Add(time.Hour)
	f.refuse(t, second, checkRegistryRequester)
	f.refuse(t, second, checkRegistryRequester)
	f.admit(t, first)

	renewed := documented(t, csr.RequesterNode)
	f.admit(t, renewed)
	f.admit(t, first) // a key that it has been admitted for
	f.refuse(t, second, checkRegistryRequester)
	record := testkit.Must(f.registry.Lookup(t.Context(), "node-1"))
	f.at = record.LastEnd
	f.refuse(t, second, checkRegistryRequester)
	f.at = f.at.Add(365 * 24 * time.Hour)
	f.refuse(t, second, checkRegistryRequester)
	f.admit(t, first)
	f.at = f.at.Add(365 * 24 * time.Hour)
	testkit.Must(f.registry.Release(t.Context(), "node-1", "uid-1"))
	f.admit(t, second)
	f.refuse(t, documented(t, csr.RequesterBootstrap), checkRegistryRequester)

	// A hello reserves nothing.
	hello := documented(t, csr.RequesterBootstrap)
	hello.Stage = attest.StageHello
	f.admit(t, hello)
}

// An operator's release or rebind admits a new key.
func TestFirstUseDocumentReleased(t *testing.T) {
	f := newFirstUse(t, documentScope)
	f.admit(t, documented(t, csr.RequesterBootstrap))
	record := testkit.Must(f.registry.Lookup(t.Context(), "node-1"))
	testkit.Must(f.registry.Rebind(t.Context(), record, "cloud:2"))
	replaced := documented(t, csr.RequesterBootstrap)
	f.refuse(t, replaced, checkRegistryName)
	replaced.Machine = "cloud:2"
	f.admit(t, replaced)
	other := documented(t, csr.RequesterBootstrap)
	other.Machine = "cloud:2"
	f.refuse(t, other, checkRegistryRequester)
	testkit.Must(f.registry.Release(t.Context(), "node-1", "uid-1"))
	f.refuse(t, other, CheckRegistryResting)
}

// Two keys of one machine at once: one of them is the node's.
func TestFirstUseDocumentRace(t *testing.T) {
	f := newFirstUse(t, documentScope)
	first, second := documented(t, csr.RequesterBootstrap), documented(t, csr.RequesterBootstrap)
	quicker := attest.AuthorizerFunc(func(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
		a, err := f.Authorize(ctx, r) // has looked, and not written
		if _, err := asked(t, f, first); err != nil {
			t.Error(err)
		}
		return a, err
	})
	if _, err := asked(t, quicker, second); !errors.Is(err, checkRegistryRequester) || !errors.Is(err, attest.CheckMembership) {
		t.Error(err)
	}
	f.admit(t, first)
	f.refuse(t, second, checkRegistryRequester)
}

// TPMs prove which machine they are, and come back with other keys as they like.
func TestFirstUseTPMRejoins(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.admit(t, answerOf(t, "node-1", "gce:p/1"))
	f.admit(t, answerOf(t, "node-1", "gce:p/1"))
}

// Where a list names the machines, in front of or behind trust on first use, it does not matter
// that a machine may have several identities, and the first key is the only one; where none does,
// it matters.
func TestListedMachinesOfManyIdentities(t *testing.T) {
	list := testkit.Must(NewStaticList([]Member{{Machine: "cloud:1", NodeName: "node-1", Provider: "cloud"}}))
	const why = "documents of every customer's machines"
	open := attest.Opening{ClusterIDs: []string{testCluster}, Roads: []attest.OpenRoad{{Provider: "cloud", Road: attest.RoadDocument,
		Identities: []attest.Grammar{{Kind: "cloud"}}, ManyIdentities: why}}}
	f := newFirstUse(t, documentScope)
	everybody := attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		return r.InsecureAdmitAnyone(), nil
	})
	for name, c := range map[string]struct {
		a    attest.Authorizer
		want error
	}{
		"list in front":                {Both(list, f.FirstUse), nil},
		"list behind":                  {Both(f.FirstUse, list), nil},
		"both of both":                 {Both(everybody, Both(list, f.FirstUse)), nil},
		"list and inventory":           {Both(With(list.Machine, list), f.FirstUse), nil},
		"no list":                      {Both(everybody, f.FirstUse), CheckRegistryScope},
		"an inventory that is no list": {Both(With(list.Machine, everybody), f.FirstUse), CheckRegistryScope},
		"first use alone":              {f.FirstUse, CheckRegistryScope},
	} {
		t.Run(name, func(t *testing.T) {
			err := attest.CheckAuthorizer(c.a, open)
			if !errors.Is(err, c.want) || err != nil && c.want == nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
			for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
				r := documented(t, csr.RequesterBootstrap)
				r.Stage, r.ManyIdentities = stage, why
				if _, err := asked(t, c.a, r); (c.want == nil) != (err == nil || errors.Is(err, checkRegistryRequester)) {
					t.Errorf("%s: got %v", stage, err)
				}
				if r.ManyIdentities != why {
					t.Error("the caller's result was changed")
				}
			}
		})
	}
	if open.Roads[0].ManyIdentities != why {
		t.Error("the caller's roads were changed")
	}
	second := documented(t, csr.RequesterBootstrap)
	second.ManyIdentities = why
	if _, err := asked(t, Both(list, f.FirstUse), second); !errors.Is(err, checkRegistryRequester) || !errors.Is(err, attest.CheckMembership) {
		t.Errorf("another key: got %v, want %s", err, checkRegistryRequester)
	}
	stranger := documented(t, csr.RequesterBootstrap)
	stranger.Machine, stranger.ManyIdentities = "cloud:2", why
	if _, err := asked(t, Both(list, f.FirstUse), stranger); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("a machine that is not listed: got %v", err)
	}
}

func TestFirstUseDocumentKinds(t *testing.T) {
	f := newFirstUse(t, documentScope)
	open := []attest.OpenRoad{{Provider: "cloud", Road: attest.RoadDocument, Identities: []attest.Grammar{{Kind: "cloud"}}}}
	if err := f.CheckAuthorizer(attest.Opening{ClusterIDs: []string{testCluster}, Roads: open}); err != nil {
		t.Error(err)
	}
	open[0].ManyIdentities = "documents of every customer's machines"
	if err := f.CheckAuthorizer(attest.Opening{ClusterIDs: []string{testCluster}, Roads: open}); !errors.Is(err, CheckRegistryScope) {
		t.Errorf("got %v, want %s", err, CheckRegistryScope)
	}
}

// The same, if the name was bound after the cache was filled: refused for every signer.
func TestFirstUseDocumentStale(t *testing.T) {
	for signs, own := range map[string][]string{"Kubernetes' own signer": nil, "our signer": {csr.SignerClientTPM}} {
		t.Run(signs, func(t *testing.T) {
			f := newFirstUse(t, documentScope)
			first, second := documented(t, csr.RequesterBootstrap), documented(t, csr.RequesterBootstrap)
			f.admit(t, first)
			f.own, f.c.Stale = own, snapshot{}
			f.refuse(t, second, checkRegistryRequester)
			f.admit(t, first)
		})
	}
}

// Where a csr.CA of ours signs, two keys may be verified before either is issued: the second
// certificate is kept back.
func TestFirstUseDocumentOwnSigners(t *testing.T) {
	f := newFirstUse(t, documentScope)
	f.own = []string{csr.SignerClientTPM}
	admitted := func() (*attest.Result, csr.IssuedRecord) {
		r := documented(t, csr.RequesterBootstrap)
		testkit.NoError(t, attest.AskMembership(t.Context(), f, r))
		issued := testkit.Must(r.Attested().Record(nil))
		issued.CredentialID = "X509SHA256=00"
		return r, issued
	}
	first, firstIssued := admitted()
	second, secondIssued := admitted()
	testkit.NoError(t, first.Attested().Grant().Record(t.Context(), firstIssued))
	if err := second.Attested().Grant().Record(t.Context(), secondIssued); !errors.Is(err, checkRegistryRequester) || !errors.Is(err, attest.CheckMembership) {
		t.Errorf("got %v, want %s", err, checkRegistryRequester)
	}
	var twice sync.WaitGroup
	for range 2 { // a signer that tries again while the first try hangs
		twice.Go(func() {
			if err := first.Attested().Grant().Record(t.Context(), firstIssued); err != nil {
				t.Errorf("the first one again: %v", err)
			}
		})
	}
	twice.Wait()
}
