package attest

import (
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/csr"
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
// ([csr.Machine]). At [StageHello] it only looks; at [StageAnswer] it writes,
// after everything else that the verifier and [Both] know to check.
type FirstUse struct {
	c FirstUseConfig
}

// NewFirstUse checks the configuration. The error names the field.
func NewFirstUse(c *FirstUseConfig) (*FirstUse, error) {
	switch {
	case c == nil:
		return nil, errors.New("attest: first use: no configuration")
	case c.Registry == nil:
		return nil, errors.New("attest: first use: Registry is nil")
	case c.NodeExists == nil:
		return nil, errors.New("attest: first use: NodeExists is nil")
	case c.MaxLifetime <= 0:
		return nil, errors.New("attest: first use: MaxLifetime is not set")
	case c.Reservation < 0 || c.Reservation > MaxReservation:
		return nil, errors.New("attest: first use: Reservation is over " + MaxReservation.String())
	}
	if err := c.Registry.Scope().check(); err != nil {
		return nil, err
	}
	f := &FirstUse{c: *c}
	if f.c.Reservation == 0 {
		f.c.Reservation = DefaultReservation
	}
	if f.c.Now == nil {
		f.c.Now = time.Now
	}
	return f, nil
}

// Authorize admits the machine if the registry has it under this name, or has
// neither. A refusal wraps [CheckMembership] and the registry's check.
func (f *FirstUse) Authorize(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error) {
	return decide(ctx, f, r, request)
}

// consider looks, and returns what writes.
func (f *FirstUse) consider(ctx context.Context, r *Result, _ *csr.Request) (*Authorization, func(context.Context) error, error) {
	if err := checkScope(r, f.c.Registry.Scope()); err != nil {
		return nil, nil, refuseMember(err)
	}
	machine := inventoryOf(r)
	claim := RegistryClaim{NodeName: r.NodeName, Machine: r.Machine, MachineUID: machine.UID, ProviderID: machine.ProviderID}
	byName, err := f.c.Registry.Lookup(ctx, claim.NodeName)
	if err != nil {
		return nil, nil, err
	}
	byMachine, err := f.c.Registry.LookupMachine(ctx, claim.Machine)
	if err != nil {
		return nil, nil, err
	}
	if err := admitName(byName, &claim); err != nil {
		return nil, nil, refuseMember(err)
	}
	if err := admitMachine(byMachine, claim.NodeName); err != nil {
		return nil, nil, refuseMember(err)
	}
	newcomer := byName == nil || byName.State != RecordBound
	if newcomer {
		if err := f.checkNewcomer(ctx, r); err != nil {
			return nil, nil, err
		}
	}
	a, err := vouch(r, "")
	if err != nil {
		return nil, nil, err
	}
	// The certificate may be issued as long as its answer can be verified.
	a.NotAfter = f.c.Now().Add(f.c.MaxLifetime + MaxAnswerAge).Truncate(time.Second)
	return a, func(ctx context.Context) error {
		return refuseMember(f.record(ctx, claim, newcomer, a.NotAfter))
	}, nil
}

// record writes that the machine is the node, and until when its certificates may
// live.
func (f *FirstUse) record(ctx context.Context, claim RegistryClaim, newcomer bool, lastEnd time.Time) error {
	r, err := f.c.Registry.Reserve(ctx, claim, f.c.Now().Add(f.c.Reservation))
	if err != nil {
		return err
	}
	if r.State != RecordBound {
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
func (f *FirstUse) checkNewcomer(ctx context.Context, r *Result) error {
	if class := requesterOf(r); r.Purpose != csr.PurposeClient || class != csr.RequesterBootstrap {
		return refuseMember(&Error{Check: CheckRegistryRequester, Got: r.Purpose.String() + " certificate asked for by " + class.String(),
			Want: "a client certificate asked for with a bootstrap token, as node " + r.NodeName + " has no record"})
	}
	exists, err := f.c.NodeExists(ctx, r.NodeName)
	if err != nil {
		return err
	}
	if exists {
		return refuseMember(&Error{Check: CheckRegistryNode, Got: "node " + r.NodeName + ", which exists", Want: "one with a record"})
	}
	return nil
}

// checkScope refuses identities that do not belong into a registry of the scope.
func checkScope(r *Result, want RegistryScope) error {
	got := RegistryScope{Road: r.Road}
	if r.Road == RoadEK && r.EK != nil {
		got.EKAlgorithm = keyAlgorithm(r.EK.PublicKey)
	}
	if got != want {
		return &Error{Check: CheckRegistryScope, Got: got.String(), Want: want.String()}
	}
	kind := r.Machine.Kind()
	switch {
	case want.Road == RoadEK && kind != "ek":
		return &Error{Check: CheckRegistryScope, Got: string(r.Machine), Want: "an identity of kind ek"}
	case want.Road == RoadAK && kind == "ek":
		return &Error{Check: CheckRegistryScope, Got: string(r.Machine), Want: "an identity of another kind than ek"}
	case kind == "ak" && !r.OneAKPerMachine:
		return &Error{Check: CheckRegistryScope, Got: string(r.Machine), Want: "an issuer that promises one AK a machine"}
	}
	return nil
}

// refuseMember makes a registry's refusal one of membership. What may succeed
// later, and what is no refusal, stays what it is.
func refuseMember(err error) error {
	var e *Error
	if !errors.As(err, &e) || errors.Is(err, csr.ErrRetry) {
		return err
	}
	switch e.Check {
	case CheckRegistryName, CheckRegistryMachine, CheckRegistryResting, CheckRegistryUID, CheckRegistryProviderID,
		CheckRegistryNode, CheckRegistryRequester, CheckRegistryScope:
		return &Error{Check: CheckMembership, Err: err}
	}
	return err
}

// inventoryOf is what the policy found for the node's name.
func inventoryOf(r *Result) *csr.Machine {
	if r.checked != nil {
		if m := r.checked.Machine(); m != nil {
			return m
		}
	}
	return &csr.Machine{}
}

func requesterOf(r *Result) csr.RequesterClass {
	if r.checked == nil {
		return 0
	}
	return r.checked.Requester().Class
}

// vouch vouches for what the inventory has, with this provider ID, which is empty
// where the inventory's is to count.
func vouch(r *Result, providerID string) (*Authorization, error) {
	m := inventoryOf(r)
	switch {
	case providerID == "":
		providerID = m.ProviderID
	case m.ProviderID != "" && m.ProviderID != providerID:
		return nil, NotMember("machine " + string(r.Machine) + " with provider ID " + providerID + ", which the inventory has as " + m.ProviderID)
	}
	return &Authorization{ProviderID: providerID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}, nil
}
