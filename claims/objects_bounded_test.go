package claims

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestStaleAnswers: an answer that is too old, or does not say how old it is, is none for
// everybody who asks for it, whatever the object says.
func TestStaleAnswers(t *testing.T) {
	const most = 5 * time.Second
	for name, tt := range map[string]struct {
		asOf  func(w *world)
		stale bool
	}{
		"as old as it may be":    {func(w *world) { w.objects.age(w.now, most) }, false},
		"new":                    {func(w *world) { w.objects.age(w.now, 0) }, false},
		"too old":                {func(w *world) { w.objects.age(w.now, most+1) }, true},
		"of a time to come":      {func(w *world) { w.objects.age(w.now, -1) }, true},
		"without its age":        {func(*world) {}, true},
		"the account's too old":  {func(w *world) { w.objects.age(w.now, 0); w.objects.account.AsOf = *w.ago(most + 1) }, true},
		"the pod's too old":      {func(w *world) { w.objects.age(w.now, 0); w.objects.pod.AsOf = *w.ago(most + 1) }, true},
		"the node's without age": {func(w *world) { w.objects.age(w.now, 0); w.objects.node.AsOf = time.Time{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.asOf(w)
			want := func(who string, err error) {
				t.Helper()
				if !tt.stale && err != nil {
					t.Errorf("%s: %v", who, err)
				}
				if tt.stale && (!errors.Is(err, CheckStaleAnswer) || !errors.Is(err, ErrRetry)) {
					t.Errorf("%s: got %v, want %v and %v", who, err, CheckStaleAnswer, ErrRetry)
				}
			}
			strict := w.strictConfig()
			strict.Objects, strict.MaxStaleness = staleObjects{w.objects}, most
			strict.Node.Objects = nil
			v := w.strictWith(t, strict)
			_, err := v.Validate(t.Context(), w.token(t))
			want("StrictValidator", err)
			_, _, err = v.ValidateOnNode(t.Context(), w.token(t), attested())
			want("ValidateOnNode", err)
			kubernetes := w.kubernetesConfig()
			kubernetes.Objects, kubernetes.MaxStaleness = staleObjects{w.objects}, most
			w.claims.Kubernetes.Node = nil
			if name == "the node's without age" {
				w.bind("node")
			}
			_, err = w.kubernetesWith(t, kubernetes).Validate(t.Context(), w.token(t), worldAudience)
			want("KubernetesValidator", err)
		})
	}
}

// TestStaleAnswersWithoutServer: the API server is gone, and the cache in front of it goes
// on answering; for no longer than was agreed to.
func TestStaleAnswersWithoutServer(t *testing.T) {
	w := newWorld(t)
	cached := newCached(t, w.objects, CacheConfig{MaxAge: time.Hour, Now: w.clock})
	config := w.strictConfig()
	config.Objects, config.MaxStaleness, config.Node = cached, 5*time.Second, nil
	v := w.strictWith(t, config)
	start := w.now
	for after, want := range []error{nil, nil, nil, nil, nil, nil, ErrRetry, ErrRetry, ErrRetry} { // by the second
		w.now = start.Add(time.Duration(after) * time.Second)
		if after == 1 {
			w.objects.fail = errDead
		}
		if _, err := v.Validate(t.Context(), w.token(t)); want != nil && !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("after %d s: got %v, want %v", after, err, want)
		}
	}
}

func TestStaleAnswersSecretsAndNodes(t *testing.T) {
	w := newWorld(t)
	w.bind("secret")
	config := w.strictConfig()
	config.MaxStaleness = time.Second
	w.objects.secret.AsOf = *w.ago(time.Second)
	if _, err := w.strictWith(t, config).Validate(t.Context(), w.token(t)); err != nil {
		t.Error(err)
	}
	w.objects.secret.AsOf = *w.ago(time.Second + 1)
	_, err := w.strictWith(t, config).Validate(t.Context(), w.token(t))
	if !errors.Is(err, CheckStaleAnswer) {
		t.Errorf("an old Secret: %v", err)
	}

	w = newWorld(t)
	r, err := w.strict(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	c := w.nodeCheck()
	c.MaxStaleness = time.Second
	w.objects.node.AsOf = *w.ago(time.Second)
	if _, err := c.Check(t.Context(), r, attested()); err != nil {
		t.Error(err)
	}
	w.objects.node.AsOf = *w.ago(time.Second + 1)
	_, err = c.Check(t.Context(), r, attested())
	if wantCheck(t, err, ErrRetry); !errors.Is(err, CheckStaleAnswer) {
		t.Errorf("an old Node: %v", err)
	}
}

func TestStaleAnswersLegacy(t *testing.T) {
	for name, change := range map[string]func(w *legacyWorld, asOf time.Time){
		"the Secret":  func(w *legacyWorld, asOf time.Time) { w.object.AsOf = asOf },
		"the account": func(w *legacyWorld, asOf time.Time) { w.account.AsOf = asOf },
	} {
		t.Run(name, func(t *testing.T) {
			w := newLegacyWorld(t)
			change(w, *w.ago(0))
			if _, err := w.validate(t); err != nil {
				t.Error(err)
			}
			change(w, *w.ago(1))
			if _, err := w.validate(t); !errors.Is(err, CheckStaleAnswer) || !errors.Is(err, ErrRetry) {
				t.Errorf("got %v, want %v", err, CheckStaleAnswer)
			}
		})
	}
}

// TestIssuerAsksEachTime: no token is issued for an object out of a cache.
func TestIssuerAsksEachTime(t *testing.T) {
	w := newWorld(t)
	config := IssuerConfig{Policy: Policy{Issuer: worldIssuer, APIAudiences: []string{worldIssuer}}, Signer: w.signer, Objects: staleObjects{w.objects}, Now: w.clock}
	if _, err := NewIssuer(config); !errors.Is(err, CheckConfig) {
		t.Errorf("a StaleObjects: %v", err)
	}
	config.Objects = w.objects
	issuer := newIssuer(t, config)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); err != nil {
		t.Error(err)
	}
	w.objects.account.AsOf = *w.ago(1)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); !errors.Is(err, CheckStaleAnswer) {
		t.Errorf("an old service account: %v", err)
	}
}

// TestValidateOnNodeReadsOnce: every object is read once, so that no two answers about one
// can differ; a getter for the Node alone is asked for it alone.
func TestValidateOnNodeReadsOnce(t *testing.T) {
	for name, apart := range map[string]bool{"one getter": false, "one for the Node": true} {
		t.Run(name, func(t *testing.T) {
			w, other := newWorld(t), newWorld(t)
			config := w.strictConfig()
			config.Node.Objects = nil
			want := 3 // account, pod, node
			if apart {
				config.Node.Objects, want = other.objects, 2
			}
			if _, _, err := w.strictWith(t, config).ValidateOnNode(context.Background(), w.token(t), attested()); err != nil {
				t.Fatal(err)
			}
			if len(w.objects.asked) != want || len(w.objects.asked)+len(other.objects.asked) != 3 {
				t.Errorf("asked for %v and %v", w.objects.asked, other.objects.asked)
			}
		})
	}
}
