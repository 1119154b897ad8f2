package claimstest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// reviewed is a cluster with a pod on node-a, its token, and a service that has it reviewed.
func reviewed(t *testing.T) (*Cluster, *Node, string, *claims.Validator) {
	t.Helper()
	c := New(t, Options{})
	node, err := c.AddNode(Node{Name: "node-a"})
	if err != nil {
		t.Fatal(err)
	}
	c.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: "node-a"})
	token, err := c.Token(t.Context(), "shop", "cart", TokenOptions{Pod: "cart-0"})
	if err != nil {
		t.Fatal(err)
	}
	config := c.ReviewConfig()
	config.Replay, config.InsecureAllowReplay = nil, true
	v, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, node, token, v
}

func TestReview(t *testing.T) {
	c, node, token, v := reviewed(t)
	review, err := c.Review(t.Context(), token, []string{"other", Audience})
	if err != nil || review.Username != "system:serviceaccount:shop:cart" || !slices.Equal(review.Audiences, []string{Audience}) ||
		!slices.Equal(review.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}) ||
		!slices.Equal(review.Extra["authentication.kubernetes.io/node-name"], []string{"node-a"}) {
		t.Fatalf("got %+v, %v", review, err)
	}
	result, facts, err := v.ValidateOnNode(t.Context(), token, node.Attested)
	if err != nil || result.Key != nil || !facts.Facts.Has(claims.FactNodeUID) {
		t.Errorf("got %+v, %+v, %v", result, facts, err)
	}
	// The objects are the API server's to read, but for the Node.
	for _, resource := range []string{"pods", "serviceaccounts", "keys"} {
		c.Break(resource, Fail)
	}
	if _, _, err := v.ValidateOnNode(t.Context(), token, node.Attested); err != nil {
		t.Errorf("only the Node is read: got %v", err)
	}
}

func TestReviewRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change    func(*Cluster)
		audiences []string
	}{
		"another audience": {func(*Cluster) {}, []string{"https://other.example"}},
		"the API server's": {func(*Cluster) {}, nil},
		"an ended token":   {func(c *Cluster) { c.Advance(2 * time.Hour) }, []string{Audience}},
		"no pod":           {func(c *Cluster) { c.Delete("pods", "shop", "cart-0") }, []string{Audience}},
		"a pod made again": {func(c *Cluster) {
			c.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart"})
		}, []string{Audience}},
		"no service account":      {func(c *Cluster) { c.Delete("serviceaccounts", "shop", "cart") }, []string{Audience}},
		"an account made again":   {func(c *Cluster) { c.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart"}) }, []string{Audience}},
		"a key that is withdrawn": {func(c *Cluster) { _ = c.RotateKey(nil) }, []string{Audience}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, token, _ := reviewed(t)
			row.change(c)
			if review, err := c.Review(t.Context(), token, row.audiences); review != nil || !errors.Is(err, claims.CheckReview) || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, %v", review, err)
			}
		})
	}
	c, _, token, _ := reviewed(t)
	other, _, _, _ := reviewed(t)
	if review, err := other.Review(t.Context(), token, []string{Audience}); review != nil || !errors.Is(err, claims.CheckReview) {
		t.Errorf("of another cluster: got %v, %v", review, err)
	}
	c.Delete("nodes", "", "node-a")
	if _, err := c.Review(t.Context(), token, []string{Audience}); err != nil {
		t.Errorf("kube-apiserver does not look at the Node of a pod's token: got %v", err)
	}
}

func TestReviewFaults(t *testing.T) {
	c, node, token, v := reviewed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for _, row := range []struct {
		kind Fault
		ctx  context.Context
	}{{Fail, t.Context()}, {Hang, ctx}} {
		c.Break("tokenreviews", row.kind)
		if _, _, err := v.ValidateOnNode(row.ctx, token, node.Attested); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("fault %d: got %v", row.kind, err)
		}
	}
	// The API server remembers the token of a pod that is gone, but the Node is read anew.
	c.Break("tokenreviews", Stale)
	c.Delete("pods", "shop", "cart-0")
	if _, _, err := v.ValidateOnNode(t.Context(), token, node.Attested); err != nil {
		t.Errorf("from the cache: got %v", err)
	}
	c.Break("tokenreviews", 0)
	if _, _, err := v.ValidateOnNode(t.Context(), token, node.Attested); !errors.Is(err, claims.CheckReview) {
		t.Errorf("later: got %v", err)
	}
	c.Break("tokenreviews", Stale)
	c.Put("nodes", claims.Object{Name: "node-a"})
	if _, _, err := v.ValidateOnNode(t.Context(), token, node.Attested); err == nil || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a Node that was made again: got %v", err)
	}
}
