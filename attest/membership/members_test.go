package membership

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// Members are both: the inventory is asked as it is, and so is the authorizer.
func TestWith(t *testing.T) {
	count, away := 0, errors.New("inventory away")
	inventory := func(_ context.Context, q csr.Question) (*csr.Machine, error) {
		if q.NodeName == "node-1" {
			return &csr.Machine{Name: "m"}, nil
		}
		return nil, away
	}
	m := With(inventory, says(&csr.Grant{ProviderID: "test://1"}, nil, &count))
	if got, err := m.Machine(t.Context(), csr.Question{NodeName: "node-1"}); err != nil || got.Name != "m" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := m.Machine(t.Context(), csr.Question{NodeName: "node-2"}); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
	if a, err := asked(t, m, answerOf(t, "node-1", "gce:p/1")); err != nil || a.ProviderID != "test://1" || count != 1 {
		t.Errorf("got %+v, %v after %d questions", a, err, count)
	}
	hello := answerOf(t, "node-1", "gce:p/1")
	hello.Stage = attest.StageHello
	if _, err := asked(t, m, hello); err != nil || count != 1 {
		t.Errorf("a hello: got %v after %d questions", err, count)
	}
	m = With(inventory, refusesHello{says(nil, attest.NotMember("x"), &count)})
	for _, r := range []*attest.Result{hello, answerOf(t, "node-1", "gce:p/1")} {
		if _, err := asked(t, m, r); !errors.Is(err, attest.CheckMembership) {
			t.Errorf("stage %v: got %v, want a refusal", r.Stage, err)
		}
	}
	if got, err := With(nil, m).Machine(t.Context(), csr.Question{NodeName: "node-1"}); got != nil || err == nil || errors.Is(err, csr.ErrNoMachine) {
		t.Errorf("no inventory: got %v, %v", got, err)
	}
}

// A list is the inventory of its own nodes, and of no others.
func TestStaticListMachine(t *testing.T) {
	list := testkit.Must(ParseStaticList([]byte("gce:p/1 node-1 test://1\ncloud:2 node-2 provider=cloud\n")))
	for node, want := range map[string]csr.Machine{
		"node-1": {Name: "node-1", NodeName: "node-1", Identity: "gce:p/1", Provider: "tpm", ProviderID: "test://1", BootstrapReady: true},
		"node-2": {Name: "node-2", NodeName: "node-2", Identity: "cloud:2", Provider: "cloud", BootstrapReady: true},
	} {
		if got, err := list.Machine(t.Context(), csr.Question{NodeName: node}); err != nil || got.Identity != want.Identity || got.Provider != want.Provider ||
			got.Name != want.Name || got.NodeName != want.NodeName || got.ProviderID != want.ProviderID || !got.BootstrapReady {
			t.Errorf("%s: got %+v, %v", node, got, err)
		}
	}
	if got, err := list.Machine(t.Context(), csr.Question{NodeName: "node-3"}); got != nil || !errors.Is(err, csr.ErrNoMachine) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, l := range []*StaticList{nil, {}} {
		if got, err := l.Machine(t.Context(), csr.Question{NodeName: "node-1"}); got != nil || !errors.Is(err, errNoList) || errors.Is(err, csr.ErrNoMachine) {
			t.Errorf("a list that was not made: got %v, %v", got, err)
		}
	}
}
