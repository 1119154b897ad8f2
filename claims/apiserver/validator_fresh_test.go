package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestIssuerAsksEachTime: no token is issued for an object out of a cache.
func TestIssuerAsksEachTime(t *testing.T) {
	w := newWorld(t)
	config := IssuerConfig{Policy: Policy{Issuer: worldIssuer, APIAudiences: []string{worldIssuer}}, Signer: w.signer, Objects: staleObjects{w.objects}, Now: w.clock}
	if _, err := NewIssuer(config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("out of a cache: %v", err)
	}
	config.Objects = w.objects
	issuer := newIssuer(t, config)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); err != nil {
		t.Error(err)
	}
	w.objects.account.AsOf = *w.ago(1)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); !errors.Is(err, claims.Check("stale-answer")) {
		t.Errorf("an old service account: %v", err)
	}
}

// TestValidatorStaleAnswers: an answer that is too old, or does not say how old it is, is
// none, whatever the object says. A pod-bound token's Node is not asked for.
func TestValidatorStaleAnswers(t *testing.T) {
	const most, none = 5 * time.Second, 999 * time.Hour
	for name, tt := range map[string]struct {
		account, pod, node time.Duration // ages; none for an answer that does not say
		bound              string
		stale              bool
	}{
		"as old as it may be":    {most, most, most, "pod", false},
		"new":                    {0, 0, 0, "pod", false},
		"too old":                {most + 1, most + 1, most + 1, "pod", true},
		"of a time to come":      {-1, -1, -1, "pod", true},
		"without its age":        {none, none, none, "pod", true},
		"the account's too old":  {most + 1, 0, 0, "pod", true},
		"the pod's too old":      {0, most + 1, 0, "pod", true},
		"the node's without age": {0, 0, none, "node", true},
		"a pod's node's":         {0, 0, none, "pod", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bind(tt.bound)
			for object, age := range map[*claims.Object]time.Duration{w.objects.account: tt.account, w.objects.pod: tt.pod, w.objects.node: tt.node} {
				if age != none {
					object.AsOf = *w.ago(age)
				}
			}
			config := w.kubernetesConfig()
			config.Objects, config.MaxStaleness = staleObjects{w.objects}, most
			_, err := w.kubernetesWith(t, config).Validate(t.Context(), w.token(t), worldAudience)
			if !tt.stale && err != nil {
				t.Error(err)
			}
			if tt.stale && (!errors.Is(err, claims.Check("stale-answer")) || !errors.Is(err, refusal.ErrRetry)) {
				t.Errorf("got %v, want %v and %v", err, claims.Check("stale-answer"), refusal.ErrRetry)
			}
		})
	}
}

// TestValidatorResultOnNode: a result of this package can be compared with an attested node.
func TestValidatorResultOnNode(t *testing.T) {
	w := newWorld(t)
	r, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	check := claims.NodeCheck{Machines: func(context.Context, string) (*claims.RegisteredMachine, error) {
		return &claims.RegisteredMachine{Identity: "ek:sha256:aa"}, nil
	}}
	node := &claims.AttestedNode{Name: "node-a", Machine: "ek:sha256:aa", ProviderID: "gce://p/z/a"}
	facts, err := check.Check(t.Context(), w.objects, r, node, w.now)
	if err != nil || !facts.Facts.Has(claims.FactRegisteredMachine) {
		t.Errorf("%v, %v", facts, err)
	}
	node.Name = "node-b"
	if _, err := check.Check(t.Context(), w.objects, r, node, w.now); !errors.Is(err, claims.CheckNodeName) {
		t.Errorf("got %v, want %v", err, claims.CheckNodeName)
	}
}
