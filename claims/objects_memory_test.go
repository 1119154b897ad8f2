package claims

import (
	"errors"
	"strconv"
	"sync"
	"testing"
)

func TestMemoryObjects(t *testing.T) {
	var m MemoryObjects
	kinds := map[string]Object{
		"serviceaccounts": {Namespace: "ns", Name: "x", UID: "sa"},
		"pods":            {Namespace: "ns", Name: "x", UID: "pod", NodeName: "n"},
		"secrets":         {Namespace: "ns", Name: "x", UID: "secret"},
		"nodes":           {Name: "x", UID: "node", ProviderID: "p"},
	}
	// Each kind has its own names.
	for kind, object := range kinds {
		m.Put(kind, object)
	}
	for kind, want := range kinds {
		if got, err := m.Get(testContext, kind, want.Namespace, "x"); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
	pod, err := m.Get(testContext, "pods", "ns", "x")
	if err != nil {
		t.Fatal(err)
	}
	m.Put("pods", Object{Namespace: "ns", Name: "x", UID: "again"})
	if again, _ := m.Get(testContext, "pods", "ns", "x"); again.UID != "again" || pod.UID != "pod" {
		t.Error("replaced in place", again, pod)
	}
	if _, err := m.Get(testContext, "pods", "other", "x"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	for range 2 { // the second time it is not there, and no fault
		for kind, object := range kinds {
			m.Delete(kind, object.Namespace, "x")
			if _, err := m.Get(testContext, kind, object.Namespace, "x"); !errors.Is(err, ErrNotFound) || err.Error() != kind+` "x" not found` {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}

func TestMemoryObjectsConcurrent(t *testing.T) {
	var m MemoryObjects
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := strconv.Itoa(i)
			for range 100 {
				m.Put("nodes", Object{Name: name})
				if _, err := m.Get(testContext, "nodes", "", name); err != nil {
					t.Error(err)
				}
				m.Delete("nodes", "", name)
			}
		})
	}
	wg.Wait()
}
