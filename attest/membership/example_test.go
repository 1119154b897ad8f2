package membership_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
)

// The calls that [membership.FirstUse] makes itself, and those that are left to the
// operator.
func ExampleRegistry() {
	ctx := context.Background()
	scope := membership.Scope{Road: attest.RoadEK, IdentityClass: "P-256"}
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
	fmt.Println(errors.Is(err, membership.CheckRegistryUID))

	// The board was replaced, then the inventory was moved: acts of the operator.
	record, err = registry.Rebind(ctx, record, second.Machine)
	if err == nil {
		record, err = registry.Adopt(ctx, record, "93d0")
	}
	fmt.Println(err)

	// The Machine is gone: whoever runs the inventory says so.
	fmt.Println(registry.Release(ctx, record.NodeName, record.MachineUID))
	// Output:
	// node-1 bound
	// true
	// <nil>
	// <nil>
}

// A rule of one's own in front of trust on first use: the type embeds what it builds on.
// Its Authorize is the one that is asked, alone or in Both.
type officeHours struct {
	*membership.FirstUse
	now func() time.Time
}

func (o officeHours) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	if hour := o.now().Hour(); hour < 8 || hour >= 18 {
		return nil, attest.NotMember("a machine that joins at night")
	}
	return o.FirstUse.Authorize(ctx, r, request)
}

func ExampleFirstUse() {
	now := func() time.Time { return time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC) }
	registry, err := membership.NewMemoryRegistry(membership.Scope{}, membership.RegistryOptions{Now: now})
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
	strict := membership.Both(officeHours{first, now}, first)
	fmt.Println(attest.Membership(context.Background(), strict, &attest.Result{Stage: attest.StageAnswer, Machine: "gce:p/1"}, nil))
	// Output:
	// not-a-member: got a machine that joins at night
}

func ExampleParseStaticList() {
	list, err := membership.ParseStaticList([]byte(`# rack 7
gce:project-1/4711 node-1
gce:project-1/4712 node-2 gce://project-1/europe-west1-b/node-2
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range list.Members() {
		fmt.Printf("%s is %s\n", m.NodeName, m.Machine)
	}
	_, err = membership.ParseStaticList([]byte("gce:project-1/4711  node-1\n"))
	fmt.Println(err)
	// Output:
	// node-1 is gce:project-1/4711
	// node-2 is gce:project-1/4712
	// membership: member list refused: line 1: got a space too many, want one between two fields
}
