package membership

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// DefaultReservation is how long a [FirstUse] reserves a name before it binds it,
// which it does at once unless it dies in between.
const DefaultReservation = time.Minute

// FirstUseConfig is what a [FirstUse] is made of. The fields of the first group
// have no default: leaving one out is an error.
type FirstUseConfig struct {
	// Registry remembers the machines. Its scope must be that of the verifier.
	Registry Registry
	// NodeExists reports whether there is a Node object of that name. A name that
	// has a Node and no record is refused: that machine came before the registry.
	// An error means that it could not find out.
	NodeExists func(ctx context.Context, nodeName string) (bool, error)
	// MaxLifetime is the longest lifetime that any signer of the cluster gives a
	// certificate of a node, recovery certificates among them: the CA's of this SDK,
	// and kube-controller-manager's where it signs. Names of machines that are gone
	// rest so long.
	MaxLifetime time.Duration

	// Reservation is how long a name is reserved before it is bound, at most
	// MaxReservation; zero means DefaultReservation.
	Reservation time.Duration
	// InsecureAllowNoMachineUID admits newcomers on attest.RoadEK for whom the inventory
	// has no UID. A TPM whose vendor certified two EKs of the registry's algorithm
	// ([Scope]) then gets as many node names as it asks for with two EKs.
	InsecureAllowNoMachineUID bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// FirstUse is trust on first use, for machines whose identity nobody knows
// before: the first machine that proves itself under a node name is that node from
// then on, and no other one, as its [Registry] remembers. It cannot keep an
// attacker's own machine from a name that nobody has claimed yet, so what the
// request came with (a bootstrap token) is all that stands in front of it.
//
// It admits a newcomer only for a client certificate that is asked for with a
// bootstrap token. It vouches for what the inventory has for the node's name
// (csr.Machine). At attest.StageHello it only looks; at attest.StageAnswer it writes by
// Result.WhenAdmitted, after everything else that is checked: it reserves, binds, and
// raises the last end itself. What is left to the caller is [Registry].Release, when a
// Machine of the inventory is gone.
//
// A type that embeds a FirstUse and has an Authorize of its own is asked by that one.
type FirstUse struct {
	c FirstUseConfig
}

// NewFirstUse checks the configuration. The error is refusal.CheckConfig, or that of the
// registry's [Scope.Check].
func NewFirstUse(c FirstUseConfig) (*FirstUse, error) {
	switch {
	case typednil.Is(c.Registry):
		return nil, refusal.Config("Registry", "", "one")
	case c.NodeExists == nil:
		return nil, refusal.Config("NodeExists", "", "a look-up of Nodes")
	case c.MaxLifetime <= 0:
		return nil, refusal.Config("MaxLifetime", c.MaxLifetime.String(), "the longest that any signer gives")
	case c.Reservation < 0 || c.Reservation > MaxReservation:
		return nil, refusal.Config("Reservation", c.Reservation.String(), "at most "+MaxReservation.String())
	}
	if err := c.Registry.Scope().Check(); err != nil {
		return nil, err
	}
	if c.Registry.Scope().Road == attest.RoadDocument {
		return nil, misfit("first use of documents, which every customer of a platform has", "a StaticList")
	}
	c.Reservation = cmp.Or(c.Reservation, DefaultReservation)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &FirstUse{c: c}, nil
}

var errNotMade = refusal.Config("FirstUse", "", "one that NewFirstUse made")

// CheckAuthorizer refuses a FirstUse that [NewFirstUse] did not make; a registry of a
// road that is not open; and on attest.RoadAK a profile that can name a machine by its AK
// (tpmcert.AKIdentity) and does not promise one AK a machine (OneAKPerMachine): no machine
// that is named so could ever be admitted.
func (f *FirstUse) CheckAuthorizer(open []attest.OpenRoad) error {
	if f == nil || f.c.Registry == nil {
		return errNotMade
	}
	scope := f.c.Registry.Scope()
	n := slices.IndexFunc(open, func(o attest.OpenRoad) bool { return o.Provider == scope.provider() && o.Road == scope.Road })
	if n < 0 {
		return misfit("no machine, as road "+scope.Road.String()+" of "+scope.provider()+" is not open", "a registry of an open road")
	}
	if why := open[n].ManyIdentities; why != "" {
		return misfit(why, "one identity a machine")
	}
	return nil
}

func misfit(got, want string) error { return refuse(CheckRegistryScope, got, want) }

// Authorize admits the machine if the registry has it under this name, or has
// neither. A refusal wraps attest.CheckMembership and the registry's check.
func (f *FirstUse) Authorize(ctx context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
	if f == nil || f.c.Registry == nil {
		return nil, errNotMade
	}
	if err := checkScope(r, f.c.Registry.Scope()); err != nil {
		return nil, refuseMember(err)
	}
	machine := inventoryOf(r)
	claim := Claim{NodeName: r.NodeName, Machine: r.Machine, MachineUID: machine.UID, ProviderID: machine.ProviderID}
	newcomer, err := f.look(ctx, r, &claim)
	if err != nil {
		return nil, refuseMember(err)
	}
	a, err := vouch(r, "")
	if err != nil {
		return nil, err
	}
	// The certificate may be issued as long as its answer can be verified.
	a.NotAfter = f.c.Now().Add(f.c.MaxLifetime + message.MaxAnswerAge).Truncate(time.Second)
	if r.Stage != attest.StageAnswer {
		return a, nil
	}
	lastEnd := a.NotAfter // whoever gets the authorization may change it
	if err := r.WhenAdmitted(func(ctx context.Context) error { return refuseMember(f.record(ctx, claim, newcomer, lastEnd)) }); err != nil {
		return nil, err
	}
	return a, nil
}

// look holds a claim against the registry, and says whether it is a newcomer's.
func (f *FirstUse) look(ctx context.Context, r *attest.Result, claim *Claim) (newcomer bool, err error) {
	var h Held
	if h.Name, err = f.c.Registry.Lookup(ctx, claim.NodeName); err != nil {
		return false, err
	}
	if h.Machine, err = f.c.Registry.LookupMachine(ctx, claim.Machine); err != nil {
		return false, err
	}
	if h.MachineUID, err = f.c.Registry.LookupMachineUID(ctx, claim.MachineUID); err != nil {
		return false, err
	}
	if err := h.Admit(claim, f.c.Now()); err != nil {
		return false, err
	}
	if h.Name != nil && h.Name.State == StateBound {
		return false, nil
	}
	return true, f.checkNewcomer(ctx, r)
}

// record writes that the machine is the node, and until when its certificates may
// live.
func (f *FirstUse) record(ctx context.Context, claim Claim, newcomer bool, lastEnd time.Time) error {
	r, err := f.c.Registry.Reserve(ctx, claim, f.c.Now().Add(f.c.Reservation))
	if err != nil {
		return err
	}
	if r.State != StateBound {
		if !newcomer { // then nobody has asked for a Node
			return conflict("a record of node "+claim.NodeName+" that is gone", "the one that was read")
		}
		if r, err = f.c.Registry.Bind(ctx, r); err != nil {
			return err
		}
	}
	_, err = f.c.Registry.Raise(ctx, r, lastEnd)
	return err
}

// checkNewcomer refuses a name that is in use, and requests that only a node makes
// which has a certificate already.
func (f *FirstUse) checkNewcomer(ctx context.Context, r *attest.Result) error {
	if class := requesterOf(r); r.Purpose != csr.PurposeClient || class != csr.RequesterBootstrap {
		return refuse(CheckRegistryRequester, r.Purpose.String()+" certificate asked for by "+class.String(),
			"a client certificate asked for with a bootstrap token, as node "+r.NodeName+" has no record")
	}
	if r.Road == attest.RoadEK && inventoryOf(r).UID == "" && !f.c.InsecureAllowNoMachineUID {
		return &attest.Error{Check: CheckRegistryInventory, Got: "a Machine without a UID for node " + r.NodeName,
			Want: "one with a UID, as one TPM can have two EKs", Err: csr.ErrRetry}
	}
	exists, err := f.c.NodeExists(ctx, r.NodeName)
	if err != nil {
		return err
	}
	if exists {
		return refuse(CheckRegistryNode, "node "+r.NodeName+", which exists", "one with a record")
	}
	return nil
}

// checkScope refuses a machine whose identity was found in another way than those in the
// registry.
func checkScope(r *attest.Result, want Scope) error {
	if got := scopeOf(r); got != want {
		return refuse(CheckRegistryScope, got.String(), want.String())
	}
	if ek := r.Machine.Kind() == "ek"; ek != (r.Road == attest.RoadEK) {
		return refuse(CheckRegistryScope, string(r.Machine)+" on road "+r.Road.String(), "an identity of kind ek on road ek alone")
	}
	if r.ManyIdentities != "" {
		return &attest.Error{Check: CheckRegistryScope, Got: r.ManyIdentities, Want: "one identity a machine", Err: csr.ErrRetry}
	}
	return nil
}

// refuseMember makes a registry's refusal one of membership. What may succeed
// later, and what is no refusal, stays what it is.
func refuseMember(err error) error {
	e, ok := errors.AsType[*attest.Error](err)
	if !ok || errors.Is(err, csr.ErrRetry) {
		return err
	}
	switch e.Check {
	case CheckRegistryName, CheckRegistryMachine, CheckRegistryResting, CheckRegistryUID, CheckRegistryProviderID,
		CheckRegistryNode, CheckRegistryRequester, CheckRegistryScope:
		return &attest.Error{Check: attest.CheckMembership, Err: err}
	}
	return err
}
