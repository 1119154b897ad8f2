package bootstraptokentest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

// A node discovers the cluster, and refuses somebody who passes for it. In a test,
// New(t, nil) and cluster.NewImpostor(t, kind) close what they opened.
func Example() {
	ctx := context.Background()
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	found, err := bootstraptoken.Discover(ctx, cluster.DiscoverConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("found:", found.Info.Server == cluster.URL(), found.Info.CAs[0].Subject)

	impostor, err := cluster.Impostor(bootstraptokentest.WrongCA)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = impostor.Close() }()
	config := cluster.DiscoverConfig()
	config.Addresses = []string{impostor.Address()}
	_, err = bootstraptoken.Discover(ctx, config)
	fmt.Println("impostor:", errors.Is(err, bootstraptoken.CheckPinned), errors.Is(err, refusal.ErrRetry))
	// Output:
	// found: true CN=bootstraptokentest CA 1
	// impostor: true false
}
