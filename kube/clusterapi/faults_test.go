package clusterapi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var errFault = errors.New("no answer")

// failing fails the n-th read of an inventory, of cache and API server together, and counts them.
func (i *Inventory) failing(t *testing.T, n int) (reads *int) {
	t.Helper()
	reads = new(int)
	fails := func() error {
		*reads++
		if *reads == n {
			return errFault
		}
		return nil
	}
	funcs := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(fails(), c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(fails(), c.List(ctx, l, opts...))
		},
	}
	i.cached, i.live = interceptor.NewClient(i.cached.(client.WithWatch), funcs), interceptor.NewClient(i.live.(client.WithWatch), funcs)
	return reads
}

// TestFaults has each read fail in turn, on each way to a Machine: no fault finds a Machine, or says that the
// Machine does not exist.
func TestFaults(t *testing.T) {
	const version = "v1beta2"
	f, byFile := newFleet(version), newFleet(version)
	byFile.byFile(t)
	for name, row := range map[string]struct {
		fleet  *fleet
		by     csr.User
		claims string
		cached []client.Object // nil: all
	}{
		"token":                 {f, bootstrap, "", nil},
		"token, not in cache":   {f, bootstrap, "", []client.Object{f.cluster}},
		"record":                {f, node, "", nil},
		"record, not in cache":  {f, node, "", []client.Object{f.cluster}},
		"by file":               {byFile, bootstrap, "metal://one", nil},
		"by file, not in cache": {byFile, bootstrap, "metal://one", []client.Object{byFile.cluster}},
	} {
		t.Run(name, func(t *testing.T) {
			for n, reads := 1, 1; n <= reads; n++ {
				i := newInventory(t, version, recorded(t, testUID("one")), row.fleet.objects(), row.cached)
				i.failing(t, n)
				if m, err := i.Machine(t.Context(), question(t, row.by, row.claims)); m != nil || !errors.Is(err, errFault) || errors.Is(err, csr.ErrNoMachine) {
					t.Errorf("read %d fails: got %+v, %v, want %v", n, m, err, errFault)
				}
				whole := newInventory(t, version, recorded(t, testUID("one")), row.fleet.objects(), row.cached)
				done := whole.failing(t, 0)
				if m, err := whole.Machine(t.Context(), question(t, row.by, row.claims)); err != nil || m.Name != "fleet/one" {
					t.Fatalf("without a fault: got %+v, %v", m, err)
				}
				reads = *done
			}
		})
	}
	if m, err := newInventory(t, version, unread{}, f.objects(), nil).Machine(t.Context(), question(t, node, "")); m != nil || !errors.Is(err, errFault) {
		t.Errorf("records that cannot be read: got %+v, %v", m, err)
	}
}

// unread are records that cannot be read.
type unread struct{ membership.Lookups }

func (unread) Lookup(context.Context, string) (*membership.Record, error) { return nil, errFault }

// TestOldCache has the API server say otherwise than the cache.
func TestOldCache(t *testing.T) {
	const version = "v1beta2"
	for name, row := range map[string]struct {
		claims string
		change func(t *testing.T, f *fleet)
	}{
		"another token":       {"", func(t *testing.T, f *fleet) { f.oneConfig = configOf(version, "one", "zzzzzz") }},
		"another provider ID": {"metal://one", func(t *testing.T, f *fleet) { set(t, f.one, "metal://later", "spec", "providerID") }},
	} {
		f := newFleet(version)
		if row.claims != "" {
			f.byFile(t)
		}
		old := make([]client.Object, 0, 5)
		for _, o := range f.objects() {
			old = append(old, o.DeepCopyObject().(client.Object))
		}
		row.change(t, f)
		i := newInventory(t, version, recorded(t, ""), f.objects(), old)
		if m, err := i.Machine(t.Context(), question(t, bootstrap, row.claims)); m != nil || !errors.Is(err, csr.ErrNoMachine) {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
}

// TestOwns has a Machine of another namespace, and a record without the UID of a Machine.
func TestOwns(t *testing.T) {
	f := newFleet("v1beta2")
	i := newInventory(t, "v1beta2", recorded(t, ""), f.objects(), nil)
	elsewhere := f.one.DeepCopy()
	elsewhere.SetNamespace("other")
	if !i.owns(f.one) || i.owns(elsewhere) {
		t.Errorf("owns: %t, %t in another namespace", i.owns(f.one), i.owns(elsewhere))
	}
	nameless := f.one.DeepCopy()
	nameless.SetUID("")
	if m, err := machine(nameless); m != nil || !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a Machine without a UID: %+v, %v", m, err)
	}
	i.records = withoutUID{}
	if m, err := i.Machine(t.Context(), question(t, node, "")); m != nil || !errors.Is(err, csr.ErrNoMachine) {
		t.Errorf("a record without the UID of a Machine: %+v, %v", m, err)
	}
}

type withoutUID struct{ membership.Lookups }

func (withoutUID) Lookup(context.Context, string) (*membership.Record, error) {
	return &membership.Record{State: membership.StateBound}, nil
}

// TestNew refuses each field that is left out or cannot be a name.
func TestNew(t *testing.T) {
	good := Config{Management: &rest.Config{Host: "https://127.0.0.1:1"}, Namespace: namespace, Cluster: work, Records: recorded(t, "")}
	for name, change := range map[string]func(c *Config){
		"Management": func(c *Config) { c.Management = nil },
		"Records":    func(c *Config) { c.Records = nil },
		"Namespace":  func(c *Config) { c.Namespace = "" },
		"Cluster":    func(c *Config) { c.Cluster = "a/b" },
		"Slots":      func(c *Config) { c.Slots = new(Slots) },
	} {
		c := good
		change(&c)
		if i, err := New(t.Context(), c); i != nil || !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, %v", name, i, err)
		}
	}
	if i, err := New(t.Context(), good); i != nil || err == nil || errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no management cluster: got %v, %v", i, err)
	}
}

// TestNotMade has what New did not make decide nothing.
func TestNotMade(t *testing.T) {
	for _, i := range []*Inventory{nil, {}} {
		if m, err := i.Machine(t.Context(), question(t, bootstrap, "")); m != nil || !errors.Is(err, errNotMade) {
			t.Errorf("Machine: %+v, %v", m, err)
		}
		if err := i.SetupWithManager(nil); !errors.Is(err, errNotMade) {
			t.Errorf("SetupWithManager: %v", err)
		}
		if err := i.Check(nil); !errors.Is(err, errNotMade) {
			t.Errorf("Check: %v", err)
		}
		a := i.Authorizer(nil)
		if _, err := a.Authorize(t.Context(), new(attest.Result)); err == nil {
			t.Error("Authorize admits")
		}
		if err := attest.CheckAuthorizer(a, attest.Opening{}); err == nil {
			t.Error("CheckAuthorizer accepts")
		}
	}
	made := newInventory(t, "v1beta2", recorded(t, ""), newFleet("v1beta2").objects(), nil)
	if m, err := made.Machine(t.Context(), csr.Question{}); m != nil || err == nil {
		t.Errorf("no request: %+v, %v", m, err)
	}
	if _, err := made.Authorizer(attest.AuthorizerFunc(nil)).Authorize(t.Context(), new(attest.Result)); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("a result without a Machine: %v", err)
	}
	if kept := testkit.Must(lean(new(unstructured.Unstructured))); kept == nil {
		t.Error("an empty object is dropped")
	}
}
