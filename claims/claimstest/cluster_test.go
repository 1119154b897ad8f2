package claimstest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// A trial is a cluster with a pod of shop/cart on node-a, and a service with a token of the pod.
type trial struct {
	*claimstest.Cluster

	node   *claimstest.Node
	config claims.ValidatorConfig
	opts   claimstest.TokenOptions
	token  string        // issued already, or "" for one with opts
	within time.Duration // in which the service decides; 0 means any time
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	c := &trial{Cluster: claimstest.New(t, claimstest.Options{}), opts: claimstest.TokenOptions{Pod: "cart-0"}}
	c.node = c.addNode(t, "node-a")
	c.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: "node-a"})
	c.Put("secrets", claims.Object{Namespace: "shop", Name: "key"})
	c.Put("validatingwebhookconfigurations", claims.Object{Name: "hook"})
	c.Put("mutatingwebhookconfigurations", claims.Object{Name: "hook"})
	c.config = c.ValidatorConfig()
	return c
}

func (c *trial) addNode(t *testing.T, name string) *claimstest.Node {
	t.Helper()
	node, err := c.AddNode(claimstest.Node{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// issue issues the token now, before the cluster changes.
func (c *trial) issue(t *testing.T) {
	t.Helper()
	var err error
	if c.token, err = c.Token(t.Context(), "shop", "cart", c.opts); err != nil {
		t.Fatal(err)
	}
}

// validate has the service validate the token, from the node.
func (c *trial) validate(t *testing.T) error {
	t.Helper()
	if c.token == "" {
		c.issue(t)
	}
	v, err := claims.NewValidator(c.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if c.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.within)
		defer cancel()
	}
	if c.node == nil {
		_, err = v.Validate(ctx, c.token)
		return err
	}
	_, _, err = v.ValidateOnNode(ctx, c.token, c.node.Attested)
	return err
}

// TestTokens: each kind of token is accepted, by claims.Validator and as by kube-apiserver, and the
// claims have the members that a real API server writes.
func TestTokens(t *testing.T) {
	const hooks = apiserver.Kubernetes137WebhookTokens
	for name, tt := range map[string]struct {
		opts    claimstest.TokenOptions
		release apiserver.Release
		says    string // part of the claims
	}{
		"pod, 1.36":          {claimstest.TokenOptions{Pod: "cart-0"}, apiserver.Kubernetes136, `"pod":{"name":"cart-0","uid":"`},
		"pod, 1.37":          {claimstest.TokenOptions{Pod: "cart-0"}, apiserver.Kubernetes137, `"node":{"name":"node-a","uid":"`},
		"node":               {claimstest.TokenOptions{Node: "node-a"}, apiserver.Kubernetes136, `"kubernetes.io":{"namespace":"shop","node":{`},
		"Secret":             {claimstest.TokenOptions{Secret: "key"}, apiserver.Kubernetes136, `"secret":{"name":"key","uid":"`},
		"nothing":            {claimstest.TokenOptions{}, apiserver.Kubernetes136, `"kubernetes.io":{"namespace":"shop","serviceaccount":{`},
		"validating webhook": {claimstest.TokenOptions{ValidatingWebhook: "hook"}, hooks, `"attestations":{"admissionReviewAPIGroups":["*"]}`},
		"mutating webhook":   {claimstest.TokenOptions{MutatingWebhook: "hook"}, hooks, `"mutatingwebhookconfiguration":{"name":"hook","uid":"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTrial(t)
			c.opts, c.node = tt.opts, nil
			c.config.InsecureAllowUnbound = name == "nothing"
			if err := c.validate(t); err != nil {
				t.Error(err)
			}
			lenient, err := apiserver.NewValidator(apiserver.ValidatorConfig{Release: tt.release, Issuers: []string{c.Issuer()}, Keys: c.KeySet(),
				Objects: c.Objects(), Audiences: []string{claimstest.Audience}})
			if err != nil {
				t.Fatal(err)
			}
			r, err := lenient.Validate(t.Context(), c.token)
			if err != nil {
				t.Fatal(err)
			}
			if payload, err := r.Claims.Marshal(); err != nil || !strings.Contains(string(payload), tt.says) {
				t.Errorf("%s, %v: no %s", payload, err, tt.says)
			}
		})
	}
}

// TestOnNode: only a token that names the node, from the machine that is registered for it.
func TestOnNode(t *testing.T) {
	for _, opts := range []claimstest.TokenOptions{{Pod: "cart-0"}, {Node: "node-a"}} {
		c := newTrial(t)
		c.opts = opts
		if err := c.validate(t); err != nil {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// TestRefused: every input of the list in the package's comment is refused, each with its check. The
// same token is accepted without the change (TestOnNode).
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		want   claims.Check
		change func(t *testing.T, c *trial)
	}{
		"pod deleted":    {"pod-gone", func(_ *testing.T, c *trial) { c.Delete("pods", "shop", "cart-0") }},
		"pod made again": {"pod-uid", func(_ *testing.T, c *trial) { c.again("pods", "shop", "cart-0") }},
		"pod moved": {"pod-node", func(t *testing.T, c *trial) {
			c.edit(t, "pods", func(o *claims.Object) { o.NodeName = "node-b" })
		}},
		"pod of another account": {"pod-service-account", func(t *testing.T, c *trial) {
			c.edit(t, "pods", func(o *claims.Object) { o.ServiceAccountName = "x" })
		}},
		"pod being deleted": {"pod-deleted", func(t *testing.T, c *trial) {
			c.edit(t, "pods", func(o *claims.Object) { o.Deleted = new(time.Time) })
		}},
		"account deleted": {"service-account-gone", func(_ *testing.T, c *trial) { c.Delete("serviceaccounts", "shop", "cart") }},
		"account made again": {"service-account-uid", func(_ *testing.T, c *trial) {
			c.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart"})
		}},
		"Node deleted":    {"node-gone", func(_ *testing.T, c *trial) { c.Delete("nodes", "", "node-a") }},
		"Node made again": {"node-uid", func(_ *testing.T, c *trial) { c.Put("nodes", claims.Object{Name: "node-a"}) }},
		"Secret made again": {"secret-uid", func(t *testing.T, c *trial) {
			c.reissue(t, claimstest.TokenOptions{Secret: "key"})
			c.again("secrets", "shop", "key")
		}},
		"webhook deleted": {"validating-webhook-configuration-gone", func(t *testing.T, c *trial) {
			c.reissue(t, claimstest.TokenOptions{ValidatingWebhook: "hook"})
			c.Delete("validatingwebhookconfigurations", "", "hook")
		}},
		"expired":       {"expired", func(_ *testing.T, c *trial) { c.Advance(time.Hour + time.Minute) }},
		"not yet valid": {"not-before", func(_ *testing.T, c *trial) { c.Advance(-2 * time.Minute) }},
		"another audience": {"audience", func(t *testing.T, c *trial) {
			c.reissue(t, claimstest.TokenOptions{Pod: "cart-0", Audiences: []string{"x"}})
		}},
		"a long life": {"lifetime", func(t *testing.T, c *trial) {
			c.reissue(t, claimstest.TokenOptions{Pod: "cart-0", Lifetime: 25 * time.Hour})
		}},
		"bound to nothing":  {"unbound-token", func(t *testing.T, c *trial) { c.reissue(t, claimstest.TokenOptions{}) }},
		"bound to a Secret": {"node-claim", func(t *testing.T, c *trial) { c.reissue(t, claimstest.TokenOptions{Secret: "key"}) }},
		"another subject": {"subject", func(t *testing.T, c *trial) {
			c.reissue(t, claimstest.TokenOptions{Pod: "cart-0", Edit: func(c *claims.Claims) { c.Subject += "x" }})
		}},
		"key withdrawn":          {"no-key", func(t *testing.T, c *trial) { c.rotate(t) }},
		"key of another cluster": {"no-key", func(t *testing.T, c *trial) { c.token = newTrial(t).issued(t) }},
		"key under the same ID":  {"token-signature", func(t *testing.T, c *trial) { c.swap(t) }},
		"another issuer": {"issuer", func(t *testing.T, c *trial) {
			c.reissue(t, claimstest.TokenOptions{Pod: "cart-0", Edit: func(c *claims.Claims) { c.Issuer += "/" }})
		}},
		"another node":       {"node-name", func(t *testing.T, c *trial) { c.node = c.addNode(t, "node-b") }},
		"machine made again": {"node-uid", func(t *testing.T, c *trial) { c.addNode(t, "node-a") }},
		"former machine":     {"attested-uid", func(t *testing.T, c *trial) { c.addNode(t, "node-a"); c.reissue(t, c.opts) }},
		"former machine, one Node": {"registered-machine", func(t *testing.T, c *trial) {
			c.addNode(t, "node-a")
			c.Put("nodes", claims.Object{Name: "node-a", UID: c.node.Attested.UID, ProviderID: c.node.ProviderID})
			c.reissue(t, c.opts)
		}},
		"machine not registered": {"machine-unregistered", func(_ *testing.T, c *trial) { c.Delete("machines", "", "node-a") }},
		"twice":                  {"token-replay", func(t *testing.T, c *trial) { _ = c.validate(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTrial(t)
			c.issue(t)
			tt.change(t, c)
			err := c.validate(t)
			if e, ok := errors.AsType[*claims.Error](err); !ok || e.Check != tt.want || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, want %s", err, string(tt.want))
			}
		})
	}
}

func (c *trial) issued(t *testing.T) string {
	t.Helper()
	c.issue(t)
	return c.token
}

func (c *trial) reissue(t *testing.T, opts claimstest.TokenOptions) {
	t.Helper()
	c.opts = opts
	c.issue(t)
}

// again deletes an object and makes it again.
func (c *trial) again(resource, namespace, name string) {
	c.Put(resource, claims.Object{Namespace: namespace, Name: name, ServiceAccountName: "cart", NodeName: "node-a"})
}

// edit changes the pod, and keeps its UID.
func (c *trial) edit(t *testing.T, resource string, change func(*claims.Object)) {
	t.Helper()
	o, err := c.Objects().Get(t.Context(), resource, "shop", "cart-0")
	if err != nil {
		t.Fatal(err)
	}
	change(o)
	c.Put(resource, *o)
}

func (c *trial) rotate(t *testing.T) {
	t.Helper()
	if err := c.RotateKey(nil); err != nil {
		t.Fatal(err)
	}
}

// swap signs the token with another key of the same ID.
func (c *trial) swap(t *testing.T) {
	t.Helper()
	keys, err := c.KeySet().Keys(t.Context(), "")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	other := claimstest.New(t, claimstest.Options{SignerOptions: jws.SignerOptions{KeyID: keys[0].KeyID()}})
	other.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart"})
	if c.token, err = other.Token(t.Context(), "shop", "cart", c.opts); err != nil {
		t.Fatal(err)
	}
}

// TestBreak: an answer that fails, hangs or is old is no refusal, and mended, the token is accepted.
func TestBreak(t *testing.T) {
	asked := []string{"keys", "serviceaccounts", "pods", "nodes", "machines"}
	for how, fault := range map[string]claimstest.Fault{"fail": claimstest.Fail, "hang": claimstest.Hang, "stale": claimstest.Stale} {
		for _, resource := range asked {
			t.Run(resource+" "+how, func(t *testing.T) {
				c := newTrial(t)
				c.Break(resource, fault)
				if fault == claimstest.Hang {
					c.within = 10 * time.Millisecond
				}
				err := c.validate(t)
				switch timeless := resource == "keys" || resource == "machines"; {
				case fault == claimstest.Stale && timeless:
					if err != nil {
						t.Error(err)
					}
					return
				case !errors.Is(err, refusal.ErrRetry),
					errors.Is(err, context.DeadlineExceeded) != (fault == claimstest.Hang),
					errors.Is(err, claims.Check("stale-answer")) != (fault == claimstest.Stale):
					t.Errorf("got %v, want %v", err, refusal.ErrRetry)
				}
				c.Break(resource, 0)
				c.within = 0
				if err := c.validate(t); err != nil {
					t.Errorf("mended: %v", err)
				}
			})
		}
	}
}

// TestStale: an old answer is that of the time when the fault began.
func TestStale(t *testing.T) {
	for name, tt := range map[string]struct {
		resource string
		change   func(t *testing.T, c *trial)
		stale    claims.Check // with old answers
		mended   claims.Check // with new ones
	}{
		"a pod that was deleted":   {"pods", func(_ *testing.T, c *trial) { c.Delete("pods", "shop", "cart-0") }, "", "pod-gone"},
		"a key that was withdrawn": {"keys", func(t *testing.T, c *trial) { c.rotate(t) }, "", "no-key"},
		"a key that is new":        {"keys", func(t *testing.T, c *trial) { c.rotate(t); c.issue(t) }, "no-key", ""},
		"a machine that is gone":   {"machines", func(_ *testing.T, c *trial) { c.Delete("machines", "", "node-a") }, "", "machine-unregistered"},
		"a pod that is new": {"pods", func(t *testing.T, c *trial) {
			c.Put("pods", claims.Object{Namespace: "shop", Name: "cart-1", ServiceAccountName: "cart", NodeName: "node-a"})
			c.reissue(t, claimstest.TokenOptions{Pod: "cart-1"})
		}, "pod-gone", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTrial(t)
			c.config.MaxStaleness, c.config.Replay, c.config.InsecureAllowReplay = time.Hour, nil, true
			c.issue(t)
			c.Break(tt.resource, claimstest.Stale)
			tt.change(t, c)
			for _, want := range []claims.Check{tt.stale, tt.mended} {
				if err := c.validate(t); want == "" && err != nil || want != "" && !errors.Is(err, want) || errors.Is(err, refusal.ErrRetry) {
					t.Errorf("got %v, want %q", err, string(want))
				}
				c.Break(tt.resource, 0)
			}
		})
	}
}

// TestOptions: the tokens have the issuer, key, header and times of the options.
func TestOptions(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1700000000, 0)
	c := &trial{Cluster: claimstest.New(t, claimstest.Options{
		Issuer: "https://issuer.example", Key: key, Now: func() time.Time { return now },
		SignerOptions: jws.SignerOptions{KeyID: "k", Type: jws.TypeJWT},
	})}
	c.Put("secrets", claims.Object{Namespace: "shop", Name: "key"})
	c.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart", UID: "uid"})
	c.Advance(time.Second)
	c.opts = claimstest.TokenOptions{Secret: "key", Audiences: []string{"a", claimstest.Audience}, Lifetime: 20 * time.Minute}
	c.config = c.ValidatorConfig()
	if err := c.validate(t); err != nil {
		t.Fatal(err)
	}
	parsed, err := jws.Parse(c.token)
	if err != nil {
		t.Fatal(err)
	}
	got, err := claims.Parse(parsed.UnverifiedPayload())
	if err != nil {
		t.Fatal(err)
	}
	if parsed.KeyID() != "k" || parsed.Type() != jws.TypeJWT || parsed.Algorithm() != jws.ES384 ||
		got.Issuer != "https://issuer.example" || got.IssuedAt.Unix != 1700000001 || got.Expiry.Unix != 1700001201 ||
		!slices.Equal(got.Audiences, c.opts.Audiences) || got.Kubernetes.ServiceAccount.UID != "uid" {
		t.Errorf("%s %s %s %+v", parsed.KeyID(), parsed.Type(), parsed.Algorithm(), got)
	}
	c.rotate(t)
	if keys, err := c.KeySet().Keys(t.Context(), "k"); err != nil || len(keys) != 0 {
		t.Errorf("%v, %v", keys, err)
	}
}

// TestMistakes: a mistake in a test is told to its author.
func TestMistakes(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claimstest.Open(claimstest.Options{Key: edwards, SignerOptions: jws.SignerOptions{Algorithm: jws.RS256}}); err == nil {
		t.Error("a key for another algorithm")
	}
	c := newTrial(t)
	if err := c.RotateKey(edwards); err != nil {
		t.Error(err)
	}
	for name, opts := range map[string]claimstest.TokenOptions{
		"two objects":        {Pod: "cart-0", Secret: "key"},
		"no such pod":        {Pod: "x"},
		"no such node":       {Node: "x"},
		"no such webhook":    {MutatingWebhook: "x"},
		"a life of a minute": {Pod: "cart-0", Lifetime: time.Minute},
		"too large":          {Pod: "cart-0", Edit: func(c *claims.Claims) { c.ID = strings.Repeat("x", claims.MaxClaimsSize) }},
	} {
		if token, err := c.Token(t.Context(), "shop", "cart", opts); err == nil || token != "" {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
	if _, err := c.Token(t.Context(), "shop", "x", claimstest.TokenOptions{Pod: "cart-0"}); err == nil {
		t.Error("no such account")
	}
	for name, call := range map[string]func(){
		"Put":               func() { c.Put("pod", claims.Object{}) },
		"Put of a machine":  func() { c.Put("machines", claims.Object{}) },
		"Delete":            func() { c.Delete("pod", "shop", "cart-0") },
		"Break":             func() { c.Break("pod", claimstest.Fail) },
		"Break by no fault": func() { c.Break("pods", claimstest.Stale+1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}
