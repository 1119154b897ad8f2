package claims

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"
)

// countingObjects counts the questions that reach it.
type countingObjects struct {
	MemoryObjects
	mu    sync.Mutex
	asked int
	err   error
}

func (c *countingObjects) count() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.err
}

func (c *countingObjects) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	if err := c.count(); err != nil {
		return nil, err
	}
	return c.MemoryObjects.Pod(ctx, namespace, name)
}

func (c *countingObjects) Node(ctx context.Context, name string) (*Node, error) {
	if err := c.count(); err != nil {
		return nil, err
	}
	return c.MemoryObjects.Node(ctx, name)
}

func newCached(t testing.TB, from Objects, config CacheConfig) *CachedObjects {
	t.Helper()
	c, err := NewCachedObjects(from, config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCachedObjects(t *testing.T) {
	var from countingObjects
	clock := newClock()
	c := newCached(t, &from, CacheConfig{MaxAge: 10 * time.Second, Now: clock.Now})
	want := func(uid string, asked int) {
		t.Helper()
		pod, err := c.Pod(testContext, "ns", "pod")
		if uid == "" {
			if !errors.Is(err, ErrNotFound) {
				t.Fatal(pod, err)
			}
		} else if err != nil || pod.UID != uid {
			t.Fatal(pod, err)
		}
		if from.asked != asked {
			t.Fatalf("asked %d times, want %d", from.asked, asked)
		}
	}
	want("", 1)
	want("", 2) // what is not there is not remembered
	from.PutPod(Pod{Object: Object{Namespace: "ns", Name: "pod", UID: "a"}})
	want("a", 3)
	from.PutPod(Pod{Object: Object{Namespace: "ns", Name: "pod", UID: "b"}})
	clock.Add(10*time.Second - 1)
	want("a", 3)
	clock.Add(1)
	want("b", 4)
	from.DeletePod("ns", "pod")
	want("b", 4)
	clock.Add(10 * time.Second)
	want("", 5)
	from.PutPod(Pod{Object: Object{Namespace: "ns", Name: "pod", UID: "c"}})
	want("c", 6)
	// An error is passed on, and the old answer is not given in its place.
	clock.Add(10 * time.Second)
	from.err = errors.New("down")
	if _, err := c.Pod(testContext, "ns", "pod"); !errors.Is(err, from.err) {
		t.Error(err)
	}
}

func TestCachedObjectsKinds(t *testing.T) {
	_, objects := recordedRequests(t)
	c := newCached(t, objects, CacheConfig{MaxAge: time.Minute})
	for range 2 {
		account, err1 := c.ServiceAccount(testContext, "ns", "sa")
		pod, err2 := c.Pod(testContext, "ns", "pod")
		secret, err3 := c.Secret(testContext, "ns", "secret")
		node, err4 := c.Node(testContext, "node")
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		if account.UID != "sa-uid" || pod.UID != "pod-uid" || secret.UID != "secret-uid" || node.UID != "node-uid" {
			t.Error(account, pod, secret, node)
		}
		objects.DeleteServiceAccount("ns", "sa")
		objects.DeletePod("ns", "pod")
		objects.DeleteSecret("ns", "secret")
		objects.DeleteNode("node")
	}
}

// A getter that breaks its contract is passed on as it is, and remembered as nothing.
type nothingObjects struct{ countingObjects }

func (n *nothingObjects) Node(context.Context, string) (*Node, error) { return nil, n.count() }

func TestCachedObjectsNothing(t *testing.T) {
	var from nothingObjects
	c := newCached(t, &from, CacheConfig{MaxAge: time.Minute})
	for range 2 {
		if node, err := c.Node(testContext, "x"); node != nil || err != nil {
			t.Error(node, err)
		}
	}
	if from.asked != 2 {
		t.Errorf("asked %d times", from.asked)
	}
}

func TestCachedObjectsBounded(t *testing.T) {
	var from countingObjects
	clock := newClock()
	const most = 16
	c := newCached(t, &from, CacheConfig{MaxAge: time.Minute, MaxEntries: most, Now: clock.Now})
	get := func(i int) {
		t.Helper()
		name := strconv.Itoa(i)
		from.PutNode(Node{Object: Object{Name: name}})
		if n, err := c.Node(testContext, name); err != nil || n.Name != name {
			t.Fatal(n, err)
		}
		if got := len(c.nodes.entries); got > most {
			t.Fatalf("%d entries, at most %d", got, most)
		}
	}
	for i := range 10 * most {
		get(i)
	}
	// What is too old goes first.
	clock.Add(time.Minute)
	get(-1)
	for len(c.nodes.entries) < most {
		get(-2 - len(c.nodes.entries))
	}
	clock.Add(time.Minute)
	get(-1000)
	if got := len(c.nodes.entries); got != 1 {
		t.Errorf("%d entries, want 1", got)
	}
}

func TestCachedObjectsStaleness(t *testing.T) {
	var from MemoryObjects
	from.PutNode(Node{Object: Object{Name: "node"}})
	clock := newClock()
	inner := newCached(t, &from, CacheConfig{MaxAge: time.Minute, Now: clock.Now})
	outer := newCached(t, inner, CacheConfig{MaxAge: time.Hour, Now: clock.Now})
	first := clock.Now()
	want := func(o Objects, asOf time.Time) {
		t.Helper()
		if node, err := o.Node(testContext, "node"); err != nil || !node.AsOf.Equal(asOf) {
			t.Errorf("as of %v, %v, want %v", node.AsOf, err, asOf)
		}
	}
	want(inner, first)
	clock.Add(time.Minute - 1)
	want(inner, first)
	want(outer, first) // the age of what it was given
	clock.Add(1)
	want(inner, first.Add(time.Minute))
	want(outer, first)
	clock.Add(-time.Hour) // an answer from a time that has not come is not given
	want(inner, clock.Now())
	if node, err := from.Node(testContext, "node"); err != nil || !node.AsOf.IsZero() {
		t.Errorf("the getter's own object was changed: %+v, %v", node, err)
	}
	ageless := newCached(t, staleObjects{&from}, CacheConfig{MaxAge: time.Minute})
	if _, err := ageless.Node(testContext, "node"); !errors.Is(err, CheckStaleAnswer) || !errors.Is(err, ErrRetry) {
		t.Errorf("an answer without an age: %v", err)
	}
}

func TestNewCachedObjectsRefuses(t *testing.T) {
	for what, err := range map[string]error{
		"no getter":        second(NewCachedObjects(nil, CacheConfig{MaxAge: time.Second})),
		"no age":           second(NewCachedObjects(&MemoryObjects{}, CacheConfig{})),
		"a negative age":   second(NewCachedObjects(&MemoryObjects{}, CacheConfig{MaxAge: -1})),
		"negative entries": second(NewCachedObjects(&MemoryObjects{}, CacheConfig{MaxAge: 1, MaxEntries: -1})),
	} {
		if !errors.Is(err, CheckConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestCachedObjectsConcurrent(t *testing.T) {
	var from countingObjects
	clock := newClock()
	c := newCached(t, &from, CacheConfig{MaxAge: time.Second, MaxEntries: 2, Now: clock.Now})
	var wg sync.WaitGroup
	for i := range 4 {
		name := strconv.Itoa(i)
		from.PutNode(Node{Object: Object{Name: name}})
		wg.Go(func() {
			for range 200 {
				if n, err := c.Node(testContext, name); err != nil || n.Name != name {
					t.Error(n, err)
				}
				clock.Add(100 * time.Millisecond)
			}
		})
	}
	wg.Wait()
}
