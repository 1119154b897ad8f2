package membership

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// stated is evidence that states a provider ID.
type stated struct{ id string }

func (s *stated) ProviderID() string { return s.id }

// TestProviderIDOfEvidence: where the inventory has no provider ID, that of the evidence is vouched for
// and recorded, and what the node says of itself is held against it.
func TestProviderIDOfEvidence(t *testing.T) {
	const ours, theirs = "gce://project/zone/vm-1", "gce://project/zone/vm-2"
	list, err := NewStaticList([]Member{{Machine: "gce:p/1", NodeName: "node-1"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		inventory string
		details   any
		claimed   string
		want      string // what is vouched for
		refused   error
	}{
		"nobody has one":                {"", nil, "", "", nil},
		"nobody, and it is claimed":     {"", nil, ours, "", refusal.Check("provider-id")},
		"the evidence's":                {"", &stated{ours}, "", ours, nil},
		"the evidence's, and claimed":   {"", &stated{ours}, ours, ours, nil},
		"another machine's is claimed":  {"", &stated{ours}, theirs, "", refusal.Check("provider-id")},
		"evidence that states none":     {"", &stated{}, "", "", nil},
		"none is stated, one claimed":   {"", &stated{}, ours, "", refusal.Check("provider-id")},
		"no details behind the pointer": {"", (*stated)(nil), ours, "", refusal.Check("provider-id")},
		"details of another kind":       {"", struct{ ProviderID string }{ours}, ours, "", refusal.Check("provider-id")},
		"the inventory's":               {"test://1", &stated{ours}, "test://1", "test://1", nil},
		"the inventory has another":     {"test://1", &stated{ours}, ours, "", refusal.Check("provider-id")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, Scope{})
			r := inventoried(t, answerOf(t, "node-1", "gce:p/1"), csr.RequesterBootstrap, csr.Machine{UID: "uid-1", ProviderID: c.inventory})
			r.Details, r.ClaimedProviderID = c.details, csr.Claimed(c.claimed)
			for _, a := range []attest.Authorizer{f, list} {
				got, err := asked(t, a, r)
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
