package membership_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
)

// The file is made once, by a person; every start of the control plane opens it.
func ExampleOpenFileRegistry() {
	dir, err := os.MkdirTemp(".", "registry") // mode 0700
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	path := filepath.Join(dir, "registry")
	scope := membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}
	if err := membership.CreateFileRegistry(ctx, path, scope); err != nil {
		fmt.Println(err)
		return
	}
	registry, err := membership.OpenFileRegistry(ctx, path, scope, membership.RegistryOptions{})
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

	// A second one waits until the first is closed, or its context ends.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = membership.OpenFileRegistry(short, path, scope, membership.RegistryOptions{})
	fmt.Println(err != nil)
	// Output:
	// true <nil>
	// true
}
