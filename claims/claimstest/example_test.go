package claimstest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// podToken issues a token for the pod shop/cart-0 on a node of the cluster. In a test,
// claimstest.New(t, …) needs no look at an error.
func podToken(cluster *claimstest.Cluster, nodeName string) string {
	cluster.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: nodeName})
	token, err := cluster.Token(context.Background(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0"})
	if err != nil {
		log.Fatal(err)
	}
	return token
}

// A service takes a pod's token, until the pod is deleted.
func Example() {
	ctx := context.Background()
	cluster, err := claimstest.Open(claimstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	token := podToken(cluster, "")

	config := cluster.ValidatorConfig()
	config.Replay, config.InsecureAllowReplay = nil, true // the service under test takes a token more than once
	validator, err := claims.NewValidator(config)
	if err != nil {
		log.Fatal(err)
	}
	result, err := validator.Validate(ctx, token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Username())

	cluster.Delete("pods", "shop", "cart-0")
	_, err = validator.Validate(ctx, token)
	fmt.Println(err)
	// Output:
	// system:serviceaccount:shop:cart
	// pod-gone: got none, want pod cart-0: pods "cart-0" not found
}

// A token is taken from the machine that its pod runs on, and from no other.
func ExampleCluster_AddNode() {
	ctx := context.Background()
	cluster, err := claimstest.Open(claimstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	validator, err := claims.NewValidator(cluster.ValidatorConfig())
	if err != nil {
		log.Fatal(err)
	}
	var nodes []*claimstest.Node
	for _, name := range []string{"node-b", "node-a"} {
		node, err := cluster.AddNode(claimstest.Node{Name: name})
		if err != nil {
			log.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	token := podToken(cluster, "node-a")
	for _, node := range nodes {
		_, facts, err := validator.ValidateOnNode(ctx, token, node.Attested)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(facts.Facts)
	}
	// Output:
	// node-name: got a token of node node-a, want node node-b
	// node-name,node-uid,attested-uid,certificate-provider-id,registered-provider-id,registered-machine,registered-machine-uid
}

// A service with a cache of objects that stops being updated, and with an API server that does
// not answer.
func ExampleCluster_Break() {
	ctx := context.Background()
	cluster, err := claimstest.Open(claimstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := cluster.ValidatorConfig()
	config.Replay, config.InsecureAllowReplay = nil, true
	config.MaxStaleness = time.Minute
	validator, err := claims.NewValidator(config)
	if err != nil {
		log.Fatal(err)
	}
	token := podToken(cluster, "")

	cluster.Break("pods", claimstest.Stale)
	cluster.Delete("pods", "shop", "cart-0")
	cluster.Advance(30 * time.Second)
	_, err = validator.Validate(ctx, token)
	fmt.Println("a pod that was deleted half a minute ago:", err)
	cluster.Advance(time.Minute)
	_, err = validator.Validate(ctx, token)
	fmt.Println("a minute later: try again:", errors.Is(err, refusal.ErrRetry), errors.Is(err, claims.Check("stale-answer")))

	cluster.Break("pods", claimstest.Hang)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = validator.Validate(ctx, token)
	fmt.Println("without an answer: try again:", errors.Is(err, refusal.ErrRetry), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// a pod that was deleted half a minute ago: <nil>
	// a minute later: try again: true true
	// without an answer: try again: true true
}

// An issuer whose key is in a TPM, here in a simulated one.
func ExampleOptions() {
	ctx := context.Background()
	tpm, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tpm.Close() }()
	key, err := tpmkey.Create(ctx, tpm, tpmkey.RSA2048, tpmkey.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = key.Close() }()
	cluster, err := claimstest.Open(claimstest.Options{Key: key})
	if err != nil {
		log.Fatal(err)
	}
	validator, err := claims.NewValidator(cluster.ValidatorConfig())
	if err != nil {
		log.Fatal(err)
	}
	result, err := validator.Validate(ctx, podToken(cluster, ""))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Key.Algorithm(), result.Username())
	// Output: RS256 system:serviceaccount:shop:cart
}

// A service that has the API server review each token. The API server remembers a good one for a while.
func ExampleCluster_Review() {
	ctx := context.Background()
	cluster, err := claimstest.Open(claimstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := cluster.ReviewConfig()
	config.Replay, config.InsecureAllowReplay = nil, true
	validator, err := claims.NewValidator(config)
	if err != nil {
		log.Fatal(err)
	}
	token := podToken(cluster, "")
	cluster.Break("tokenreviews", claimstest.Stale)
	cluster.Delete("pods", "shop", "cart-0")
	result, err := validator.Validate(ctx, token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("from the API server's cache:", result.Username())
	cluster.Break("tokenreviews", 0)
	_, err = validator.Validate(ctx, token)
	fmt.Println("later: refused by the review:", errors.Is(err, claims.CheckReview))
	// Output:
	// from the API server's cache: system:serviceaccount:shop:cart
	// later: refused by the review: true
}
