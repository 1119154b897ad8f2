package membership_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// A list is who may join, in one value: the inventory, and which machine is which node.
func ExampleStaticList() {
	list, err := membership.ParseStaticList([]byte(`# rack 7
gce:project-1/4711 node-1
gce:project-1/4712 node-2 gce://project-1/europe-west1-b/node-2
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	var members membership.Members = list // for csr.Policy.Machines and attest.VerifierConfig.Authorizer
	machine, err := members.Machine(context.Background(), csr.Question{NodeName: "node-2"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(machine.Identity, machine.ProviderID)
	_, err = members.Machine(context.Background(), csr.Question{NodeName: "node-3"})
	fmt.Println(err)

	_, err = membership.ParseStaticList([]byte("gce:project-1/4711  node-1\n"))
	fmt.Println(err)
	// Output:
	// gce:project-1/4712 gce://project-1/europe-west1-b/node-2
	// no such machine
	// member-list: line 1: got a space too many, want one between two fields
}

// The machines of a kind of evidence of one's own: the last field of a line is the name that its
// document.KindConfig has as Provider. A line without it is of kind tpm, and admits no machine of another.
func ExampleParseStaticList() {
	members, err := membership.ParseStaticList([]byte(
		"cloud:vm-17 node-1 provider=cloud\n" +
			"cloud:vm-18 node-2 cloud://zone-1/vm-18 provider=cloud\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	open := attest.Opening{Roads: []attest.OpenRoad{{Provider: "cloud", Road: attest.RoadDocument, Identities: []attest.Grammar{{Kind: "cloud"}}}}}
	fmt.Println(attest.CheckAuthorizer(members, open)) // as a verifier of that kind does when it is made

	members, err = membership.ParseStaticList([]byte("cloud:vm-17 node-1\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(attest.CheckAuthorizer(members, open))
	// Output:
	// <nil>
	// member-list: member 1, node node-1: got evidence of tpm, which is not open for cloud:vm-17; machines of kind cloud are found with provider=cloud in the line
}

// Trust on first use of the machines of an inventory. The registry is of one cluster: a verifier
// of another refuses it when it is made.
func ExampleFirstUse() {
	scope := membership.Scope{Cluster: "shop-eu-1", Road: attest.RoadEK, IdentityClass: "P-256"}
	registry, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{}) // or OpenFileRegistry
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := membership.NewFirstUse(membership.FirstUseConfig{
		Registry:    registry,
		NodeExists:  func(context.Context, string) (bool, error) { return false, nil },
		MaxLifetime: 24 * time.Hour,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	inventory := func(_ context.Context, q csr.Question) (*csr.Machine, error) {
		if q.NodeName != "node-1" {
			return nil, csr.ErrNoMachine
		}
		return &csr.Machine{Name: "machine-1", UID: "6f2b", NodeName: "node-1", BootstrapReady: true}, nil
	}
	members := membership.With(inventory, first)

	open := attest.Opening{ClusterIDs: []string{"shop-eu-1"}, Roads: []attest.OpenRoad{{Provider: "tpm", Road: attest.RoadEK}}}
	fmt.Println(attest.CheckAuthorizer(members, open))
	open.ClusterIDs = []string{"shop-us-1"}
	fmt.Println(attest.CheckAuthorizer(members, open))
	// Output:
	// <nil>
	// registry-scope: got a registry of cluster "shop-eu-1", want one of the verifier's cluster: "shop-us-1"
}

// A rule in front of trust on first use: the type embeds a FirstUse, and its own Authorize is called, alone
// or in Both.
type officeHours struct {
	*membership.FirstUse
	now func() time.Time
}

func (o officeHours) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	if hour := o.now().Hour(); hour < 8 || hour >= 18 {
		return nil, attest.NotMember("a machine that joins at night")
	}
	return o.FirstUse.Authorize(ctx, r)
}

// A list in front of trust on first use, and a further rule: a machine must be admitted by all of them, and
// nothing is recorded about a machine that one of them refuses.
func ExampleBoth() {
	now := func() time.Time { return time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC) }
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "shop-eu-1"}, membership.RegistryOptions{Now: now})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour, Now: now,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }})
	if err != nil {
		fmt.Println(err)
		return
	}
	list, err := membership.NewStaticList([]membership.Member{{Machine: "gce:p/1", NodeName: "node-1"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	members := membership.With(list.Machine, membership.Both(list, officeHours{first, now}))
	for _, machine := range []attest.Identity{"gce:p/2", "gce:p/1"} {
		r := attest.NewResult(attest.StageAnswer, nil) // as a verifier has it after every other check
		r.Provider, r.NodeName, r.Machine = "tpm", "node-1", machine
		fmt.Println(attest.AskMembership(context.Background(), members, r))
	}
	// Output:
	// not-a-member: got machine gce:p/2, which is not listed
	// not-a-member: got a machine that joins at night
}

// The calls that [membership.FirstUse] makes itself, and the calls that are the operator's.
func ExampleRegistry() {
	ctx := context.Background()
	scope := membership.Scope{Cluster: "shop-eu-1", Road: attest.RoadEK, IdentityClass: "P-256"}
	registry, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	first := membership.Claim{NodeName: "node-1", Machine: "ek:sha256:ab12", MachineUID: "6f2b"}
	record, err := registry.Reserve(ctx, first, time.Now().Add(time.Minute))
	if err == nil {
		record, err = registry.Bind(ctx, record, time.Now().Add(24*time.Hour), nil)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(record.NodeName, record.State)

	// Another machine with a copy of the first one's bootstrap data.
	second := membership.Claim{NodeName: "node-2", Machine: "ek:sha256:cd34", MachineUID: "6f2b"}
	_, err = registry.Reserve(ctx, second, time.Now().Add(time.Minute))
	fmt.Println(err)

	// The board was replaced, then the inventory was moved: acts of the operator.
	record, err = registry.Rebind(ctx, record, second.Machine)
	if err == nil {
		record, err = registry.Adopt(ctx, record, "93d0")
	}
	fmt.Println(record.Machine, err)

	// The inventory's owner releases Machines that are gone, here in a sweep.
	gone := func(machineUID string) bool { return machineUID == "93d0" }
	for record, err := range registry.Records(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if gone(record.MachineUID) {
			released, err := registry.Release(ctx, record.NodeName, record.MachineUID)
			fmt.Println(record.NodeName, released, err)
		}
	}
	// Output:
	// node-1 bound
	// registry-machine-uid: got node node-2, want that of Machine UID 6f2b, node-1, unless an operator releases that one
	// ek:sha256:cd34 <nil>
	// node-1 true <nil>
}
