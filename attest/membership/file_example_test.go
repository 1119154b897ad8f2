package boltregistry_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/membership/boltregistry"
)

// The file is made once, by a person; every start of the control plane opens it.
func ExampleOpen() {
	dir, err := os.MkdirTemp(".", "registry") // mode 0700
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	path := filepath.Join(dir, "registry")
	scope := membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}
	if err := boltregistry.Create(ctx, path, scope); err != nil {
		fmt.Println(err)
		return
	}
	registry, err := boltregistry.Open(ctx, path, scope, membership.RegistryOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer registry.Close()

	first, err := membership.NewFirstUse(membership.FirstUseConfig{
		Registry:    registry,
		NodeExists:  func(context.Context, string) (bool, error) { return false, nil },
		MaxLifetime: 24 * time.Hour,
	})
	fmt.Println(first != nil, err)

	// Every start after the first opens it, once no other process has it open.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = boltregistry.Open(short, path, scope, membership.RegistryOptions{})
	fmt.Println(err != nil)
	// Output:
	// true <nil>
	// true
}
