package attest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// The file is made once, by a person; every start of the control plane opens it.
// [attest.FirstUse] makes these calls itself.
func ExampleFileRegistry() {
	dir, err := os.MkdirTemp("", "registry")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	path := filepath.Join(dir, "registry")
	scope := attest.RegistryScope{Road: attest.RoadEK, EKAlgorithm: "P-256"}
	if err := attest.CreateFileRegistry(ctx, path, scope); err != nil {
		fmt.Println(err)
		return
	}
	registry, err := attest.OpenFileRegistry(path, scope, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer registry.Close()

	first := attest.RegistryClaim{NodeName: "node-1", Machine: "ek:sha256:ab12", MachineUID: "6f2b"}
	record, err := registry.Reserve(ctx, first, time.Now().Add(time.Minute))
	if err == nil {
		record, err = registry.Bind(ctx, record)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(record.NodeName, record.State)

	second := attest.RegistryClaim{NodeName: "node-1", Machine: "ek:sha256:cd34", MachineUID: "6f2b"}
	_, err = registry.Reserve(ctx, second, time.Now().Add(time.Minute))
	fmt.Println(errors.Is(err, attest.CheckRegistryName))

	// The board was replaced: an act of the operator.
	_, err = registry.Rebind(ctx, record, second.Machine)
	fmt.Println(err)
	// Output:
	// node-1 bound
	// true
	// <nil>
}

func ExampleParseStaticList() {
	list, err := attest.ParseStaticList([]byte(`# rack 7
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
	_, err = attest.ParseStaticList([]byte("gce:project-1/4711  node-1\n"))
	fmt.Println(err)
	// Output:
	// node-1 is gce:project-1/4711
	// node-2 is gce:project-1/4712
	// attest: member list refused: line 1: got a space too many, want one between two fields
}
