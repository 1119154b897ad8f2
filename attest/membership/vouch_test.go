package membership

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// stated is evidence that states a provider ID.
type stated struct{ id string }

func (s *stated) ProviderID() string { return s.id }

// unvouching admits every machine, and says nothing of provider IDs.
type unvouching struct{}

func (unvouching) Authorize(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
	return r.InsecureAdmitAnyone(), nil
}

// TestProviderIDOfEvidence: if the inventory has no provider ID, the evidence's is granted and recorded, and
// compared with the node's claim.
func TestProviderIDOfEvidence(t *testing.T) {
	const ours, theirs = "gce://project/zone/vm-1", "gce://project/zone/vm-2"
	list := testkit.Must(NewStaticList([]Member{{Machine: "gce:p/1", NodeName: "node-1"}}))
	for name, c := range map[string]struct {
		inventory string
		details   any
		claimed   string
		want      string // the granted one
		refused   error
	}{
		"no provider ID":                {"", nil, "", "", nil},
		"none, and one is claimed":      {"", nil, ours, "", refusal.Check("provider-id")},
		"the evidence's":                {"", &stated{ours}, "", ours, nil},
		"the evidence's, and claimed":   {"", &stated{ours}, ours, ours, nil},
		"another machine's is claimed":  {"", &stated{ours}, theirs, "", refusal.Check("provider-id")},
		"evidence that states none":     {"", &stated{}, "", "", nil},
		"none is stated, one claimed":   {"", &stated{}, ours, "", refusal.Check("provider-id")},
		"details of another kind":       {"", struct{ ProviderID string }{ours}, ours, "", refusal.Check("provider-id")},
		"the inventory's":               {"test://1", &stated{ours}, "test://1", "test://1", nil},
		"the inventory agrees":          {ours, &stated{ours}, ours, ours, nil},
		"the inventory contradicts it":  {theirs, &stated{ours}, "", "", refusal.Check("provider-id-evidence")},
		"and it is claimed":             {theirs, &stated{ours}, theirs, "", refusal.Check("provider-id-evidence")},
		"of another cloud":              {"aws:///us-east-2a/i-1", &stated{ours}, "", "", refusal.Check("provider-id-evidence")},
		"of another project":            {"gce://other/zone/vm-1", nil, "", "", refusal.Check("provider-id-evidence")},
		"of the project":                {"gce://p/zone/vm-2", nil, "gce://p/zone/vm-2", "gce://p/zone/vm-2", nil},
		"none, ever":                    {"none", nil, "", "", nil},
		"none, ever, and it is claimed": {"none", nil, ours, "", refusal.Check("provider-id")},
		"none, ever, and it is stated":  {"none", &stated{ours}, "", "", refusal.Check("provider-id-evidence")},
		"the inventory has another":     {"test://1", &stated{ours}, ours, "", refusal.Check("provider-id")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, Scope{})
			r := inventoried(t, answerOf(t, "node-1", "gce:p/1"), csr.RequesterBootstrap, csr.Machine{UID: "uid-1", ProviderID: c.inventory})
			r.Details, r.ClaimedProviderID = c.details, csr.NewClaimed(c.claimed)
			unknown := c.claimed != "" && c.inventory == "" // not yet
			if d, ok := c.details.(*stated); ok && d != nil && d.id != "" {
				unknown = false
			}
			_, without := asked(t, unvouching{}, r)
			if c.claimed != "" && !errors.Is(without, refusal.Check("provider-id")) && !errors.Is(without, c.refused) || errors.Is(without, refusal.ErrRetry) != unknown {
				t.Errorf("without a grant: got %v", without)
			}
			for _, a := range []attest.Authorizer{f, list} {
				got, err := asked(t, a, r)
				if errors.Is(err, refusal.ErrRetry) != unknown {
					t.Errorf("%T: got %v, want a retry %t", a, err, unknown)
				}
				if !errors.Is(err, c.refused) || err == nil && got.ProviderID != c.want {
					t.Errorf("%T: got %+v, %v, want %q, %v", a, got, err, c.want, c.refused)
				}
			}
			record, err := f.registry.Lookup(t.Context(), "node-1")
			if err != nil || (record == nil) != (c.refused != nil) || record != nil && record.ProviderID != c.want {
				t.Errorf("record %+v, %v", record, err)
			}
		})
	}
}

// TestProviderIDOfEvidenceLater: a machine whose record has the provider ID that its evidence stated
// comes back with it, and with no other; one that was recorded before gets it; and a replaced board
// brings its own.
func TestProviderIDOfEvidenceLater(t *testing.T) {
	f := newFirstUse(t, Scope{})
	comes := func(machine attest.Identity, details any) error {
		r := inventoried(t, answerOf(t, "node-1", machine), csr.RequesterBootstrap, csr.Machine{UID: "uid-1"})
		r.Details = details
		_, err := asked(t, f, r)
		return err
	}
	const ours, theirs = "gce://project/zone/vm-1", "gce://project/zone/vm-2"
	for _, step := range []struct {
		what    string
		machine attest.Identity
		details any
		want    error
		record  string // afterwards
	}{
		{"a kind that states none", "gce:p/1", nil, nil, ""},
		{"it is filled in", "gce:p/1", &stated{ours}, nil, ours},
		{"again", "gce:p/1", &stated{ours}, nil, ours},
		{"renamed", "gce:p/1", &stated{theirs}, checkRegistryProviderID, ours},
		{"not stated now", "gce:p/1", nil, refusal.ErrRetry, ours},
		{"what no record can have", "gce:p/1", &stated{"gce://\x00"}, checkRegistryClaim, ours},
		{"another machine", "gce:p/2", &stated{theirs}, checkRegistryName, ours},
	} {
		if err := comes(step.machine, step.details); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.what, err, step.want)
		}
		if r, err := f.registry.Lookup(t.Context(), "node-1"); err != nil || r.ProviderID != step.record {
			t.Errorf("%s: record %+v, %v, want %q", step.what, r, err, step.record)
		}
	}
	record, err := f.registry.Lookup(t.Context(), "node-1")
	if err == nil {
		record, err = f.registry.Rebind(t.Context(), record, "gce:p/2")
	}
	if err != nil || record.ProviderID != "" {
		t.Fatalf("rebound: %+v, %v", record, err)
	}
	if err := comes("gce:p/2", &stated{theirs}); err != nil {
		t.Errorf("the new board: %v", err)
	}
	if r, err := f.registry.Lookup(t.Context(), "node-1"); err != nil || r.ProviderID != theirs {
		t.Errorf("the new board's record %+v, %v", r, err)
	}
}

// TestListContradictsEvidence: so does a list that has another provider ID, in front of trust on first use
// or alone, and nothing is recorded. Both IDs are in the error.
func TestListContradictsEvidence(t *testing.T) {
	const ours, theirs = "gce://project/zone/vm-1", "gce://project/zone/vm-2"
	for id, want := range map[string]error{ours: nil, theirs: attest.CheckMembership, "metal3://ns/vm-1": nil} {
		list := testkit.Must(NewStaticList([]Member{{Machine: "gce:p/1", NodeName: "node-1", ProviderID: id}}))
		for name, in := range map[string]func(f attest.Authorizer) attest.Authorizer{
			"alone":      func(attest.Authorizer) attest.Authorizer { return list },
			"in front":   func(f attest.Authorizer) attest.Authorizer { return Both(list, f) },
			"at the end": func(f attest.Authorizer) attest.Authorizer { return Both(f, list) },
		} {
			f := newFirstUse(t, Scope{})
			r := inventoried(t, answerOf(t, "node-1", "gce:p/1"), csr.RequesterBootstrap, csr.Machine{UID: "uid-1"})
			r.Details = &stated{ours}
			if name != "alone" && id != ours && want == nil {
				continue // first use vouches for the evidence's
			}
			_, err := asked(t, in(f), r)
			if !errors.Is(err, want) || want != nil && name == "alone" && (!strings.Contains(err.Error(), ours) || !strings.Contains(err.Error(), theirs)) {
				t.Errorf("%s, %s: got %v, want %v", id, name, err, want)
			}
			if n := len(recordsOf(t, f.registry)); n > 0 && (err != nil || name == "alone") {
				t.Errorf("%s, %s: %d records", id, name, n)
			}
		}
	}
}

// TestRecordHasReconciledProviderID: the record of trust on first use has the provider ID that the
// certificate gets, whichever authorizer knows it and in which order they are asked, and the machine
// comes back.
func TestRecordHasReconciledProviderID(t *testing.T) {
	const id = "metal://rack-1/7"
	list := testkit.Must(NewStaticList([]Member{{Machine: "gce:p/1", NodeName: "node-1", ProviderID: id}}))
	for name, in := range map[string]func(f *FirstUse) attest.Authorizer{
		"a list in front":   func(f *FirstUse) attest.Authorizer { return Both(list, f) },
		"a list at the end": func(f *FirstUse) attest.Authorizer { return Both(f, list) },
		"a wrapper": func(f *FirstUse) attest.Authorizer {
			return attest.AuthorizerFunc(func(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
				a, err := f.Authorize(ctx, r)
				if err == nil {
					a.ProviderID = id
				}
				return a, err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, Scope{})
			for _, class := range []csr.RequesterClass{csr.RequesterBootstrap, csr.RequesterNode, csr.RequesterNode} {
				r := inventoried(t, answerOf(t, "node-1", "gce:p/1"), class, csr.Machine{UID: "uid-1"})
				r.ManyIdentities = map[string]string{"a list in front": "many"}[name] // asked about a copy
				got, err := asked(t, in(f.FirstUse), r)
				if err != nil || got.ProviderID != id {
					t.Fatalf("got %+v, %v", got, err)
				}
				record, err := f.registry.Lookup(t.Context(), "node-1")
				if err != nil || record.ProviderID != id || len(record.Issued) == 0 || record.Issued[len(record.Issued)-1].ProviderID != id {
					t.Fatalf("recorded %+v, %v, want %s", record, err, id)
				}
			}
			r := inventoried(t, answerOf(t, "node-1", "gce:p/1"), csr.RequesterNode, csr.Machine{UID: "uid-1"})
			if _, err := asked(t, f, r); !errors.Is(err, checkRegistryProviderID) || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("without the list: got %v, want a retry", err)
			}
		})
	}
}
