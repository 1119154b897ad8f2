package attesttest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

func expectGotIn(t *testing.T, p csr.Provider, w *World, want []string) {
	t.Helper()
	got := GotIn(Try(context.Background(), p, w))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got in: %q\nwant:   %q", got, want)
	}
}

// TestWeakPolicies are providers whose policy is weak.
func TestWeakPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		machines func(context.Context, *World, csr.Question) (*csr.Machine, error)
		signers  []string
		forget   []string
		want     []string
	}{
		"every node has a machine": {machines: func(ctx context.Context, w *World, q csr.Question) (*csr.Machine, error) {
			m, err := w.machine(ctx, csr.Question{NodeName: NodeName})
			if err != nil {
				return nil, err
			}
			another := *m
			another.Name, another.NodeName = "machine-of-"+q.NodeName, q.NodeName
			return &another, nil
		}, forget: []string{"membership"}, want: []string{"stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine",
			"node-unknown", "node-not-ready", "unknown-node-by-stranger", "inventory-of-another-machine", "inventory-of-another-provider"}},
		// The evidence must agree: that is the policy's own rule.
		"serves another signer": {signers: []string{"cluster.x-k8s.io/kube-apiserver-client-kubelet-another"}},
		"decides without the inventory": {machines: func(ctx context.Context, w *World, q csr.Question) (*csr.Machine, error) {
			m, err := w.machine(ctx, q)
			if errors.Is(err, errDown) {
				return w.known[q.NodeName], nil
			}
			return m, err
		}, forget: []string{"membership"}, want: []string{"inventory-down", "stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, w := newNaive(t, c.forget...)
			policy := *w.Config.Policy
			policy.SignerNames = append(slices.Clone(policy.SignerNames), c.signers...)
			if c.machines != nil {
				policy.Machines = func(ctx context.Context, q csr.Question) (*csr.Machine, error) { return c.machines(ctx, w, q) }
			}
			n.policy = &policy
			expectGotIn(t, n, w, c.want)
		})
	}
}

// misbehaving does one thing that no provider may do.
type misbehaving struct {
	*naive
	before func(*csr.Request)
	after  func(*csr.Attested, error) (*csr.Attested, error)
}

func (m *misbehaving) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	if m.before != nil {
		m.before(r.Request())
	}
	a, err := m.naive.VerifyClientAttestationData(ctx, r)
	if m.after != nil {
		return m.after(a, err)
	}
	return a, err
}

func TestMisbehavingProviders(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*csr.Request)
		after  func(*csr.Attested, error) (*csr.Attested, error)
		want   string // one of the reported names
	}{
		"panics": {before: func(r *csr.Request) {
			if len(r.Spec.Usages) == 0 {
				panic("no usages")
			}
		}, want: "usages-missing"},
		"changes the request": {before: func(r *csr.Request) { r.Metadata.Annotations = map[string]string{"seen": "yes"} }, want: "honest-client"},
		"refuses everybody":   {after: func(*csr.Attested, error) (*csr.Attested, error) { return nil, naiveRefusal("everybody") }, want: "honest-client"},
		"returns nothing":     {after: func(*csr.Attested, error) (*csr.Attested, error) { return nil, nil }, want: "honest-client"},
		"hides its refusals":  {after: func(a *csr.Attested, err error) (*csr.Attested, error) { return a, hide(err) }, want: "document-forged"},
		"names no machine": {after: func(a *csr.Attested, err error) (*csr.Attested, error) {
			if a != nil {
				a = a.Checked().Vouch("", a.Grant(), nil)
			}
			return a, err
		}, want: "honest-client"},
	} {
		t.Run(name, func(t *testing.T) {
			n, w := newNaive(t)
			p := &misbehaving{naive: n, before: c.before, after: c.after}
			if got := GotIn(Try(context.Background(), p, w)); !slices.Contains(got, c.want) {
				t.Errorf("got %q, want %s among them", got, c.want)
			}
		})
	}
}

// hide turns a refusal into an error of no kind.
func hide(err error) error {
	if err == nil {
		return nil
	}
	return errors.New("something went wrong")
}

// TestAttacksOfOnesOwn: attacks of an author are tried, too, and reported like the others.
func TestAttacksOfOnesOwn(t *testing.T) {
	failed := errors.New("no request")
	for name, c := range map[string]struct {
		class string
		err   error // instead of an honest request
		want  bool  // to be reported
	}{
		"an honest request that gets in":    {class: classHonest},
		"an attack that gets in":            {class: classBinding, want: true},
		"an attack that cannot be made":     {class: classBinding, err: failed, want: true},
		"an attack that ends early":         {class: classBinding, err: naiveRefusal("before"), want: true},
		"an honest request that is refused": {class: classHonest, err: naiveRefusal("before"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			documents := toyDocuments(t, strictKind)
			var w *World
			w = NewWorld(t, WorldOptions{Documents: documents, Attacks: []Attack{{Name: "own", Class: c.class, Description: "D.",
				Make: func(ctx context.Context, p csr.Provider) (*csr.Request, error) {
					if c.err != nil {
						return nil, c.err
					}
					return requestOptions{}.make(ctx, &attempt{World: w, provider: p})
				}}}})
			var want []string
			if c.want {
				want = []string{"own"}
			}
			expectGotIn(t, realProvider(t, w.Config), w, want)
		})
	}
}
