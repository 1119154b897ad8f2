// Package members decides which machine may be which node: a machine whose identity the inventory
// has, a machine that an operator approved, or the first machine that attests as the node.
// [Authorizer] is an attest.Authorizer over the registries of several kinds of evidence.
package members

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/refusal"
)

// Mode says who may be a node whose machine's identity the inventory (csr.Machine.Identity)
// does not have. Machines whose identity is there are admitted in every mode.
type Mode string

// The modes. The empty string is not one of them.
const (
	// ModeInventory admits no other machine.
	ModeInventory Mode = "Inventory"
	// ModeFirstUse admits the first machine that attests as the node.
	ModeFirstUse Mode = "FirstUse"
	// ModeApproval admits the machine that an operator has approved: one with a bound record.
	ModeApproval Mode = "Approval"
)

// Config is the configuration of [Authorizer]. The fields of the first group have no default:
// leaving one out is an error.
type Config struct {
	Mode Mode
	// Registries has an entry for each kind of evidence, at least one, whose registries are
	// over the same objects, such as registry.Registry: a machine that is recorded by one kind
	// is refused by another. Every machine that is admitted is recorded, including machines of
	// the inventory, so that each certificate is recorded with its machine.
	Registries []membership.FirstUseConfig

	// Kind is the one kind by which ModeFirstUse admits machines; empty means "tpm".
	Kind string
	// FirstUseAfter is the time until which ModeFirstUse admits only machines that are
	// recorded: after etcd was restored from a backup, the longest lifetime of a certificate
	// later. Zero is long ago.
	FirstUseAfter time.Time
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Authorizer is an attest.Authorizer.
type Authorizer struct {
	config Config
	byKind map[string]*registered
}

// registered is first use and its registry, for one kind of evidence.
type registered struct {
	*membership.FirstUse
	registry membership.Registry
}

// New checks the configuration. The error is refusal.CheckConfig, or that of
// membership.NewFirstUse.
func New(config Config) (*Authorizer, error) {
	config.Kind = cmp.Or(config.Kind, tpm.Provider)
	m := &Authorizer{config: config, byKind: map[string]*registered{}}
	if m.config.Now == nil {
		m.config.Now = time.Now
	}
	var names []string
	for i, c := range config.Registries {
		first, err := membership.NewFirstUse(c)
		if err != nil {
			return nil, fmt.Errorf("members: Registries[%d]: %w", i, err)
		}
		name := cmp.Or(c.Registry.Scope().Provider, tpm.Provider)
		if m.byKind[name] != nil {
			return nil, refusal.Config("Registries", "two for "+name, "one for each kind of evidence")
		}
		m.byKind[name] = &registered{first, c.Registry}
		names = append(names, name)
	}
	switch {
	case !slices.Contains([]Mode{ModeInventory, ModeFirstUse, ModeApproval}, config.Mode):
		return nil, refusal.Config("Mode", refusal.Quote(string(config.Mode)), "Inventory, FirstUse or Approval")
	case len(names) == 0:
		return nil, refusal.Config("Registries", "", "one for each kind of evidence")
	case config.Mode == ModeFirstUse && m.byKind[config.Kind] == nil:
		return nil, refusal.Config("Kind", refusal.Quote(config.Kind), "a kind with a registry: "+refusal.Quotes(names))
	}
	return m, nil
}

// CheckAuthorizer checks each kind's registry. If machines are admitted by their identity in
// the inventory, or by an operator, they are not counted: then it does not matter that a
// machine may have several identities.
func (m *Authorizer) CheckAuthorizer(open attest.Opening) error {
	if m == nil || len(m.byKind) == 0 {
		return refusal.Config("Authorizer", "", "one that New made")
	}
	for name, of := range m.byKind {
		roads := slices.Clone(open.Roads)
		for i := range roads {
			if !m.firstUse(name) {
				roads[i].ManyIdentities = ""
			}
		}
		each := open
		each.Roads = roads
		if err := of.CheckAuthorizer(each); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// firstUse reports whether machines that are not known in advance are admitted by evidence of
// a kind.
func (m *Authorizer) firstUse(name string) bool {
	return m.config.Mode == ModeFirstUse && name == m.config.Kind
}

// Authorize admits the machine that the inventory names for the node; if the inventory names
// none, the mode decides. The verifier has already refused every other machine, and kind of
// evidence, than the inventory names (csr.Machine).
func (m *Authorizer) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	first, named, err := m.of(ctx, r)
	if err != nil {
		return nil, err
	}
	a, err := first.Authorize(ctx, named)
	if err != nil || named == r {
		return a, err
	}
	admitted := r.Admit(attest.KnownNode(a.AdmittedAs(named)))
	admitted.Grant = a.Grant
	return admitted, nil
}

// AuthorizeHello refuses what Authorize refuses, as far as it is known.
func (m *Authorizer) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	first, named, err := m.of(ctx, r)
	if err != nil {
		return err
	}
	return first.AuthorizeHello(ctx, named)
}

// of returns the first use that decides about a machine and, where the inventory or an operator
// has named the machine, a result that does not count its identities (see CheckAuthorizer).
func (m *Authorizer) of(ctx context.Context, r *attest.Result) (*membership.FirstUse, *attest.Result, error) {
	if m == nil || r == nil || r.Checked() == nil || r.Checked().Machine() == nil {
		return nil, nil, attest.NotMember("a result without a machine of the inventory, or Authorizer that New has not made")
	}
	machine := r.Checked().Machine()
	of := m.byKind[r.Provider]
	switch {
	case of == nil:
		return nil, nil, attest.NotMember("machine " + string(r.Machine) + " by " + r.Provider + ", which is no kind of evidence that is configured")
	case machine.Identity == "" && (m.config.Mode == ModeApproval || m.firstUse(r.Provider) && m.config.Now().Before(m.config.FirstUseAfter)):
		record, err := of.registry.Lookup(ctx, r.NodeName)
		if err != nil {
			return nil, nil, err
		}
		if record == nil || record.State != membership.StateBound {
			return nil, nil, m.unknown(r)
		}
		if m.firstUse(r.Provider) {
			return of.FirstUse, r, nil
		}
	case machine.Identity == "" && !m.firstUse(r.Provider):
		return nil, nil, attest.NotMember("machine " + string(r.Machine) + " by " + r.Provider + ", where the inventory has no identity for node " + r.NodeName)
	case machine.Identity == "":
		return of.FirstUse, r, nil
	}
	named := *r // by the inventory or an operator: see CheckAuthorizer
	named.ManyIdentities = ""
	return of.FirstUse, &named, nil
}

// unknown says why a machine named by neither the inventory nor a record is not admitted.
func (m *Authorizer) unknown(r *attest.Result) error {
	if m.config.Mode == ModeApproval {
		return attest.NotMember("machine " + string(r.Machine) + ", which no operator has approved as node " + r.NodeName)
	}
	return &attest.Error{Check: membership.CheckRegistryResting, Got: "machine " + string(r.Machine) + ", unknown as node " + r.NodeName,
		Want: "one that is recorded, or first use after " + m.config.FirstUseAfter.Format(time.RFC3339) + ", as etcd was restored", Err: refusal.ErrRetry}
}
