// Package kindtest has helpers of the tests of the kinds of documents.
package kindtest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// WeakPlatform replaces the verification, or changes the claims, where its fields are set.
type WeakPlatform struct {
	document.Platform
	Instead func(data []byte, q *attest.Inquiry) (*document.Claims, error)
	Find    func(*document.Claims)
}

// Read reads as the platform does.
func (p *WeakPlatform) Read(data []byte) (*document.Claims, error) {
	return p.found(p.Platform.Read(data))
}

// Verify verifies as the platform does, or calls Instead.
func (p *WeakPlatform) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	if p.Instead != nil {
		return p.found(p.Instead(data, q))
	}
	return p.found(p.Platform.Verify(ctx, data, q))
}

func (p *WeakPlatform) found(claims *document.Claims, err error) (*document.Claims, error) {
	if err == nil && p.Find != nil {
		p.Find(claims)
	}
	return claims, err
}

// NoFirstUse wants no verifier of this configuration to trust on first use.
func NoFirstUse(t *testing.T, provider string, config attest.VerifierConfig) {
	t.Helper()
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "cluster-1", Provider: provider, Road: attest.RoadDocument}, membership.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if config.Authorizer, err = membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: time.Hour,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }}); err == nil {
		_, err = attest.NewVerifier(config)
	}
	if !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("first use: %v", err)
	}
}

// Replay has a platform verify the vectors at this time.
func Replay(t *testing.T, p document.Platform, at time.Time, list []vectors.Vector) {
	for _, v := range list {
		t.Run(v.Name, func(t *testing.T) {
			claims, err := p.Verify(context.Background(), v.Document, &attest.Inquiry{Now: at, Budget: attest.NewBudget(12)})
			switch {
			case v.Expect == "" && err != nil, v.Expect != "" && !errors.Is(err, refusal.Check(v.Expect)):
				t.Errorf("%v, want %q", err, v.Expect)
			case v.Expect == "" && string(claims.Machine) != v.Machine:
				t.Errorf("got %s, want %s", claims.Machine, v.Machine)
			}
		})
	}
}

// Conformance has attacks try a kind, and wants these to get in. Those to ignore depend on random lengths.
// So do the changes of single fields that get past a weak kind: none gets past another.
func Conformance(t *testing.T, documents *attesttest.Documents, want []string, ignore ...string) {
	t.Helper()
	world := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: documents})
	v, err := attest.NewVerifier(world.Config)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := attesttest.Try(context.Background(), v, world)
	got := slices.DeleteFunc(attesttest.GotIn(outcomes), func(name string) bool {
		field := strings.HasPrefix(name, "document-field-") || name == "document-in-another-encoding"
		return slices.Contains(ignore, name) || len(want) > 0 && field
	})
	if !slices.Equal(got, want) {
		t.Errorf("got in: %q, want %q", got, want)
		for _, o := range outcomes {
			if o.Fault != "" {
				t.Log(o.Name, o.Err)
			}
		}
	}
	if len(outcomes) < 70 {
		t.Errorf("%d attacks", len(outcomes))
	}
}

// Machine is a machine of a kind's cloud, listed as node-1 in the configuration of a verifier.
type Machine struct {
	Provider string
	ID       attest.Identity
	Config   func() attest.VerifierConfig
	Join     func(*attest.Verifier) error // as node-1
}

// joins has the machine join after a change of the configuration. It wants the check to refuse it, or a
// join if the check is "".
func (m *Machine) joins(t *testing.T, change func(*attest.VerifierConfig), want refusal.Check) {
	t.Helper()
	config := m.Config()
	change(&config)
	v, err := attest.NewVerifier(config)
	if err == nil {
		err = m.Join(v)
	}
	if want == "" && err != nil || want != "" && (!errors.Is(err, want) || errors.Is(err, refusal.ErrRetry)) {
		t.Errorf("%v, want %q", err, want)
	}
}

// StepDown wants the machine to join only if it is listed by this kind of evidence, as node-1 and under
// its own identity, and not where the key must be in a TPM. The two others are identities of other
// machines.
func (m *Machine) StepDown(t *testing.T, others [2]attest.Identity, otherProvider string) {
	for name, c := range map[string]struct {
		member   membership.Member
		resident bool
		want     refusal.Check
	}{
		"listed by its document": {membership.Member{Machine: m.ID, NodeName: "node-1", Provider: m.Provider}, false, ""},
		"listed by its TPM":      {membership.Member{Machine: m.ID, NodeName: "node-1"}, false, attest.CheckMembership},
		"listed by another kind": {membership.Member{Machine: m.ID, NodeName: "node-1", Provider: otherProvider}, false, attest.CheckMembership},
		"another node's":         {membership.Member{Machine: m.ID, NodeName: "node-2", Provider: m.Provider}, false, attest.CheckMembership},
		"another machine":        {membership.Member{Machine: others[0], NodeName: "node-1", Provider: m.Provider}, false, attest.CheckMembership},
		"a key in a TPM":         {membership.Member{Machine: m.ID, NodeName: "node-1", Provider: m.Provider}, true, "key-not-resident"},
	} {
		t.Run(name, func(t *testing.T) {
			members, err := membership.NewStaticList([]membership.Member{c.member, {Machine: others[1], NodeName: "node-9", Provider: m.Provider}})
			if err != nil {
				t.Fatal(err)
			}
			m.joins(t, func(config *attest.VerifierConfig) {
				config.Authorizer = attest.AuthorizerFunc(members.Authorize) // of kinds that are not open here, too
				config.RequireTPMResident = c.resident
			}, c.want)
		})
	}
}

// Inventory has the machine join with each provider ID in the inventory, and wants the join to be refused
// by the check, or to succeed if it is ""; the requester is not told of the ID.
func (m *Machine) Inventory(t *testing.T, wanted map[string]refusal.Check) {
	for providerID, want := range wanted {
		t.Run(providerID, func(t *testing.T) {
			m.joins(t, func(config *attest.VerifierConfig) {
				config.Policy.Machines = func(_ context.Context, q csr.Question) (*csr.Machine, error) {
					return &csr.Machine{Name: "machine-1", NodeName: q.NodeName, BootstrapReady: true, ProviderID: providerID}, nil
				}
			}, want)
		})
	}
}

// Lines wants lines of a list to be taken where only this kind is open, or an error at the start that
// has a text in it: a line that no machine can match keeps one out.
func Lines(t *testing.T, kind attest.Kind, lines map[string]string) {
	roads := kind.Describe().Roads
	for i := range roads {
		roads[i].Provider = kind.Describe().Provider
	}
	for line, want := range lines {
		t.Run(line, func(t *testing.T) {
			list, err := membership.ParseStaticList([]byte(line + "\n"))
			if err == nil {
				err = attest.CheckAuthorizer(list, attest.Opening{Roads: roads})
			}
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
		})
	}
}

// Cost has a platform read and verify documents at a time, as a join does, for
// costsearch.Search.Read. The cost is the budget's work and the bytes.
func Cost(p document.Platform, at time.Time) func([]byte) (int, error) {
	return func(data []byte) (int, error) {
		q := &attest.Inquiry{Now: at, Budget: attest.NewBudget(12)}
		_, err := p.Read(data)
		if err == nil {
			_, err = p.Verify(context.Background(), data, q)
		}
		_, _, work := q.Budget.Spent()
		return len(data) + work, err
	}
}

// RefusesCheaply wants each input to be refused for at most so many bytes of memory.
func RefusesCheaply(t *testing.T, most uint64, inputs map[string][]byte, read func(data []byte) error) {
	for name, data := range inputs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := read(data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("taken")
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > most {
				t.Errorf("%d bytes allocated", got)
			}
		})
	}
}
