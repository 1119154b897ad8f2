package bootstraptokentest_test

import (
	"context"
	"fmt"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
)

// A node discovers the cluster, and refuses an impostor. In a test, New(t, nil) and
// cluster.NewImpostor(t, kind) close their servers.
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
	config.Addresses = []string{impostor.Address(), cluster.Address()}
	found, err = bootstraptoken.Discover(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("found:", found.Address == cluster.URL(), "after", len(impostor.Requests()), "request to the impostor")
	// Output:
	// found: true CN=bootstraptokentest CA 1
	// found: true after 1 request to the impostor
}
