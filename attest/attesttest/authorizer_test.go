package attesttest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/refusal"
)

var testMembers = []membership.Member{
	{Machine: "gce:shop/4711", NodeName: "node-1", ProviderID: "gce://shop/z/node-1"},
	{Machine: "azure:s/v", NodeName: "node-2", Provider: "azure"},
	{Machine: "ek:sha256:" + attest.Identity(strings.Repeat("a7", 32)), NodeName: "node-3"},
}

// TestRunAuthorizer: a list passes, with each kind of machine.
func TestRunAuthorizer(t *testing.T) {
	list, err := membership.NewStaticList(testMembers)
	if err != nil {
		t.Fatal(err)
	}
	RunAuthorizer(t, list, testMembers...)
	if _, err := authorizerTries(nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no members: %v", err)
	}
}

// TestWeakAuthorizers: the mistakes that an author of an authorizer makes, each named by the request that it admits.
func TestWeakAuthorizers(t *testing.T) {
	nodes, machines := map[attest.Identity]string{}, map[string]attest.Identity{}
	for _, m := range testMembers {
		nodes[m.Machine], machines[m.NodeName] = m.NodeName, m.Machine
	}
	no := attest.NotMember("no member")
	for name, c := range map[string]struct {
		authorize func(r *attest.Result) (*attest.Authorization, error)
		want      []string // parts of names
	}{
		"by machine": {func(r *attest.Result) (*attest.Authorization, error) {
			if nodes[r.Machine] == "" {
				return nil, no
			}
			return r.Admit(attest.KnownNode(nodes[r.Machine])), nil
		}, nil},
		"by node": {func(r *attest.Result) (*attest.Authorization, error) {
			if machines[r.NodeName] != r.Machine {
				return nil, no
			}
			return r.Admit(attest.KnownNode(r.NodeName)), nil
		}, nil},
		"everyone": {func(r *attest.Result) (*attest.Authorization, error) { return r.InsecureAdmitAnyone(), nil },
			[]string{"stranger", "member-as-unknown-node", "member-as-another-node", "stranger-as-unknown-node"}},
		"any known machine": {func(r *attest.Result) (*attest.Authorization, error) {
			if nodes[r.Machine] == "" {
				return nil, no
			}
			return r.Admit(attest.KnownNode(r.NodeName)), nil
		}, []string{"member-as-unknown-node", "member-as-another-node"}},
		"any known node": {func(r *attest.Result) (*attest.Authorization, error) {
			if machines[r.NodeName] == "" {
				return nil, no
			}
			return r.Admit(attest.KnownNode(r.NodeName)), nil
		}, []string{"stranger", "member-as-another-node"}},
		"a machine of the same project": {func(r *attest.Result) (*attest.Authorization, error) {
			if machines[r.NodeName] == "" || machines[r.NodeName][:4] != r.Machine[:4] {
				return nil, no
			}
			return r.Admit(attest.KnownNode(r.NodeName)), nil
		}, []string{"stranger"}},
		"the claimed provider ID is granted": {func(r *attest.Result) (*attest.Authorization, error) {
			if machines[r.NodeName] != r.Machine {
				return nil, no
			}
			a := r.Admit(attest.KnownNode(r.NodeName))
			a.ProviderID = r.ClaimedProviderID.Unproven()
			return a, nil
		}, []string{"provider-id-claimed"}},
		"an error that does not refuse": {func(r *attest.Result) (*attest.Authorization, error) {
			if machines[r.NodeName] != r.Machine {
				return nil, errors.New("no member")
			}
			return r.Admit(attest.KnownNode(r.NodeName)), nil
		}, []string{"stranger", "member-as-unknown-node", "member-as-another-node", "stranger-as-unknown-node"}},
		"no member is admitted": {func(*attest.Result) (*attest.Authorization, error) { return nil, no }, []string{"member"}},
	} {
		t.Run(name, func(t *testing.T) {
			tries, err := authorizerTries(testMembers)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, y := range tries {
				fault, err := y.faultOf(t.Context(), attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) { return c.authorize(r) }))
				kind, _, _ := strings.Cut(y.name, "/")
				kind = strings.TrimSuffix(kind, "-at-answer")
				if fault != "" && !slices.Contains(got, kind) {
					t.Logf("%s: %s (%v)", kind, fault, err)
					got = append(got, kind)
				}
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
