package claims

import (
	"errors"
	"strconv"
	"sync"
	"testing"
)

func TestMemoryObjects(t *testing.T) {
	var m MemoryObjects
	ctx := testContext
	// Each kind has its own names.
	m.PutServiceAccount(Object{Namespace: "ns", Name: "x", UID: "sa"})
	m.PutPod(Pod{Object: Object{Namespace: "ns", Name: "x", UID: "pod"}, NodeName: "n"})
	m.PutSecret(Object{Namespace: "ns", Name: "x", UID: "secret"})
	m.PutNode(Node{Object: Object{Namespace: "ignored", Name: "x", UID: "node"}, ProviderID: "p"})
	account, err1 := m.ServiceAccount(ctx, "ns", "x")
	pod, err2 := m.Pod(ctx, "ns", "x")
	secret, err3 := m.Secret(ctx, "ns", "x")
	node, err4 := m.Node(ctx, "x")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if account.UID != "sa" || pod.UID != "pod" || pod.NodeName != "n" || secret.UID != "secret" || node.UID != "node" || node.ProviderID != "p" {
		t.Error(account, pod, secret, node)
	}
	m.PutPod(Pod{Object: Object{Namespace: "ns", Name: "x", UID: "again"}})
	if again, _ := m.Pod(ctx, "ns", "x"); again.UID != "again" || pod.UID != "pod" {
		t.Error("replaced in place", again, pod)
	}
	m.DeleteServiceAccount("ns", "x")
	m.DeletePod("ns", "x")
	m.DeleteSecret("ns", "x")
	m.DeleteNode("x")
	for range 2 {
		_, err1 := m.ServiceAccount(ctx, "ns", "x")
		_, err2 := m.Pod(ctx, "ns", "x")
		_, err3 := m.Secret(ctx, "ns", "x")
		_, err4 := m.Node(ctx, "x")
		for kind, err := range map[string]error{"serviceaccounts": err1, "pods": err2, "secrets": err3, "nodes": err4} {
			if !errors.Is(err, ErrNotFound) || err.Error() != kind+` "x" not found` {
				t.Errorf("%s: %v", kind, err)
			}
		}
		m.DeleteNode("x") // not there, and no fault
	}
	if _, err := m.Pod(ctx, "other", "x"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestMemoryObjectsConcurrent(t *testing.T) {
	var m MemoryObjects
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := strconv.Itoa(i)
			for range 100 {
				m.PutNode(Node{Object: Object{Name: name}})
				if _, err := m.Node(testContext, name); err != nil {
					t.Error(err)
				}
				m.DeleteNode(name)
			}
		})
	}
	wg.Wait()
}
