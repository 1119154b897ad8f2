package vector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// Operation is one call of a registry, as defined by membership.Registry, and its required
// result.
type Operation struct {
	// Op is reserve, bind, raise, rebind, adopt, release, lookup, lookupMachine or
	// lookupMachineUID.
	Op string `json:"op"`
	// Now is the registry's clock at the call.
	Now time.Time `json:"now"`
	// NodeName and Machine are the node and the machine that the call is about, as far as it
	// takes them; MachineUID and ProviderID are the inventory's.
	NodeName   string `json:"nodeName,omitempty"`
	Machine    string `json:"machine,omitempty"`
	MachineUID string `json:"machineUID,omitempty"`
	ProviderID string `json:"providerID,omitempty"`
	// Deadline is that of a reservation; LastEnd is the end that raise records.
	Deadline time.Time `json:"deadline,omitzero"`
	LastEnd  time.Time `json:"lastEnd,omitzero"`
	// Keep is the name under which the record that the call returns is kept, and Seen the name
	// of the kept record that is passed to bind, raise, rebind and adopt: the one that the
	// caller read, whatever has happened to it since.
	Keep string `json:"keep,omitempty"`
	Seen string `json:"seen,omitempty"`

	// Expect is the check that refuses, "" for success; Retry says that the refusal is not
	// final. Found is the record that is returned, as far as its members are set; a lookup
	// without it must find none.
	Expect string         `json:"expect,omitempty"`
	Retry  bool           `json:"retry,omitempty"`
	Found  *RegistryFound `json:"found,omitempty"`
}

// RegistryFound is a record of a registry.
type RegistryFound struct {
	// State is reserved, bound or resting.
	State string `json:"state"`
	// NodeName, Machine, ProviderID, Deadline and LastEnd are as in membership.Record; those
	// that are not set are not compared.
	NodeName   string    `json:"nodeName,omitempty"`
	Machine    string    `json:"machine,omitempty"`
	ProviderID string    `json:"providerID,omitempty"`
	Deadline   time.Time `json:"deadline,omitzero"`
	LastEnd    time.Time `json:"lastEnd,omitzero"`
}

// Perform makes the calls on an empty registry in order, setting the registry's clock with
// setNow before each. It returns nil if each has its required result, except that a refusal of
// the last call is returned, whatever the operation expects.
func Perform(ctx context.Context, r membership.Registry, setNow func(time.Time), operations []Operation) error {
	kept := map[string]*membership.Record{}
	for n := range operations {
		o := &operations[n]
		setNow(o.Now)
		record, err := o.call(ctx, r, kept[o.Seen])
		if broken := (*brokenVector)(nil); errors.As(err, &broken) {
			return err
		}
		if err != nil && n == len(operations)-1 {
			return err
		}
		if err := o.compare(record, err); err != nil {
			return fmt.Errorf("operation %d, %s: %w", n, o.Op, err)
		}
		if o.Keep != "" {
			kept[o.Keep] = record
		}
	}
	return nil
}

func (o *Operation) call(ctx context.Context, r membership.Registry, seen *membership.Record) (*membership.Record, error) {
	if takes := o.Op == "bind" || o.Op == "raise" || o.Op == "rebind" || o.Op == "adopt"; takes != (seen != nil) {
		return nil, &brokenVector{fmt.Errorf("%s with the record %q", o.Op, o.Seen)}
	}
	switch o.Op {
	case "reserve":
		return r.Reserve(ctx, membership.Claim{NodeName: o.NodeName, Machine: attest.Identity(o.Machine),
			MachineUID: o.MachineUID, ProviderID: o.ProviderID}, o.Deadline)
	case "bind":
		return r.Bind(ctx, seen, time.Time{}, nil)
	case "raise": // must bind a bound record
		if seen.State != membership.StateBound {
			return nil, &attest.Error{Check: membership.CheckRegistryConflict, Got: "a reservation", Want: "a bound record", Err: refusal.ErrRetry}
		}
		return r.Bind(ctx, seen, o.LastEnd, nil)
	case "rebind":
		return r.Rebind(ctx, seen, attest.Identity(o.Machine))
	case "adopt":
		return r.Adopt(ctx, seen, o.MachineUID)
	case "release":
		_, err := r.Release(ctx, o.NodeName, o.MachineUID)
		return nil, err
	case "lookup":
		return r.Lookup(ctx, o.NodeName)
	case "lookupMachine":
		return r.LookupMachine(ctx, attest.Identity(o.Machine))
	case "lookupMachineUID":
		return r.LookupMachineUID(ctx, o.MachineUID)
	}
	return nil, &brokenVector{fmt.Errorf("unknown operation %q", o.Op)}
}

// compare compares the result of a call with the required one. Its error hides the call's: a
// refusal in the middle is not the one that the vector is about.
func (o *Operation) compare(record *membership.Record, err error) error {
	got := names(err)
	switch {
	case o.Expect == "" && err != nil:
		return fmt.Errorf("refused: %v", err)
	case o.Expect != "" && !slices.Equal(got, []string{o.Expect}):
		return fmt.Errorf("got %q, want %s: %v", got, o.Expect, err)
	case errors.Is(err, refusal.ErrRetry) != o.Retry:
		return fmt.Errorf("to be tried again: want %v: %v", o.Retry, err)
	case (record != nil) != (o.Found != nil):
		return fmt.Errorf("got record %v, want %v", record, o.Found)
	case record == nil:
		return nil
	}
	return differs(RegistryFound{State: string(record.State), NodeName: record.NodeName, Machine: string(record.Machine),
		ProviderID: record.ProviderID, Deadline: record.Deadline.UTC(), LastEnd: record.LastEnd.UTC()}, *o.Found)
}

// checkOperations refuses a list that contradicts the vector.
func checkOperations(operations []Operation, expect string, retry bool) error {
	if len(operations) == 0 {
		return errors.New("no operations")
	}
	for n := range operations {
		o := &operations[n]
		switch {
		case o.Expect != "" && o.Found != nil:
			return fmt.Errorf("operation %d expects a refusal and a record", n)
		case o.Expect == "" && o.Retry:
			return fmt.Errorf("operation %d expects success and another try", n)
		}
	}
	if last := &operations[len(operations)-1]; last.Expect != expect || last.Retry != retry {
		return fmt.Errorf("the last operation expects %q, the vector %q", last.Expect, expect)
	}
	return nil
}

// FirstUse replaces the environment's members with trust on first use.
type FirstUse struct {
	// EKAlgorithm is the registry's scope: absent for the road of the AK certificate,
	// otherwise as in membership.Scope.
	EKAlgorithm string `json:"ekAlgorithm,omitempty"`
	// Nodes are the names of the existing Node objects.
	Nodes []string `json:"nodes,omitempty"`
	// MaxLifetimeSeconds is the longest lifetime of a node's certificate.
	MaxLifetimeSeconds int64 `json:"maxLifetimeSeconds"`
	// History is the operations on the registry before the request came.
	History []Operation `json:"history,omitempty"`
}

// clock is a clock that is set manually.
type clock struct{ at time.Time }

func (c *clock) now() time.Time  { return c.at }
func (c *clock) set(t time.Time) { c.at = t }

// memory is an empty registry in memory of one of the clusters, with its clock.
func memory(scope membership.Scope, clusters []string) (membership.Registry, *clock) {
	c := &clock{}
	if len(clusters) > 0 {
		scope.Cluster = clusters[0]
	}
	return forge.Must(membership.NewMemoryRegistry(scope, membership.RegistryOptions{Now: c.now})), c
}

// replayMemory performs the operations on the registry in memory.
func replayMemory(ctx context.Context, operations []Operation) error {
	r, c := memory(membership.Scope{}, []string{"cluster"})
	return Perform(ctx, r, c.set, operations)
}

// authorizer is membership.FirstUse over a registry in memory with the history.
func (f *FirstUse) authorizer(now time.Time, clusters []string) attest.Authorizer {
	scope := membership.Scope{Road: attest.RoadAK}
	if f.EKAlgorithm != "" {
		scope = membership.Scope{Road: attest.RoadEK, IdentityClass: f.EKAlgorithm}
	}
	r, c := memory(scope, clusters)
	forge.Check(Perform(context.Background(), r, c.set, f.History))
	c.set(now)
	use := forge.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: r, MaxLifetime: time.Duration(f.MaxLifetimeSeconds) * time.Second, Now: c.now,
		NodeExists: func(_ context.Context, name string) (bool, error) { return slices.Contains(f.Nodes, name), nil }}))
	return &listed{use.Authorize, use.AuthorizeHello}
}
