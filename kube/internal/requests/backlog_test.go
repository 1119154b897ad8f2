package requests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// small are bounds that a test reaches.
var small = bounds{requests: 20, ofRequester: 8, bytes: 4 << 10, ofRequesterB: 2 << 10}

func newTestBacklog(opts Options) *backlog {
	if opts.Workers == 0 {
		opts.Workers = 1000
	}
	if opts.Done == nil {
		opts.Done = NewRecent()
	}
	return newBacklog(opts, small)
}

// filed is a request of a requester to a signer, filed so many seconds after others.
func filed(name, signer, requester string, seconds int) *certificatesv1.CertificateSigningRequest {
	o := request(name, signer, "")
	o.Spec.Username, o.ResourceVersion = requester, "1"
	o.CreationTimestamp = metav1.NewTime(time.Unix(int64(seconds), 0))
	return o
}

// file files n of them.
func (q *backlog) file(n int, signer, requester string) {
	for i := range n {
		q.put(filed(fmt.Sprintf("%s-%04d", requester, i), signer, requester, i), 0)
	}
}

// take takes what can be looked at now, at most n, and has none of it done.
func (q *backlog) take(n int) (names []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(names) < n {
		it := q.next()
		if it == nil {
			break
		}
		names = append(names, it.key.Name)
	}
	return names
}

func (q *backlog) done(names ...string) {
	for _, name := range names {
		q.Done(Key{SignerName: ours, Name: name})
	}
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestBacklogInTurn has requesters served in turn, each in the order in which it has filed,
// however the list is sorted.
func TestBacklogInTurn(t *testing.T) {
	q := newTestBacklog(Options{})
	for name, seconds := range map[string]int{"d": 4, "b": 2, "e": 5, "a": 1, "c": 3} {
		q.put(filed(name, ours, "flood", seconds), 0)
	}
	q.put(filed("newcomer", ours, "another", 9), 0)
	want(t, "taken", q.take(9), "a", "newcomer", "b", "c", "d", "e")
	q.done("c")
	q.put(filed("newcomer-2", ours, "another", 10), 0)
	want(t, "taken later", q.take(9), "newcomer-2")
}

// TestBacklogSlow has neither a slow signer nor a slow requester hold up others.
func TestBacklogSlow(t *testing.T) {
	q := newTestBacklog(Options{Workers: 8})
	q.file(8, ours, "slow")
	want(t, "of one requester", q.take(9), "slow-0000", "slow-0001")
	for _, requester := range []string{"b", "c", "d"} {
		q.file(3, ours, requester)
	}
	if n := len(q.take(20)); n != 6 {
		t.Errorf("%d more are looked at, want 6: of 8 workers", n)
	}
	q.put(filed("honest", builtIn, "newcomer", 0), 0)
	q.put(filed("of the slow one", builtIn, "slow", 1), 0)
	if got := q.take(20); len(got) != 2 {
		t.Errorf("%q of another signer, want both", got)
	}
	q.done("slow-0001")
	want(t, "when one is done", q.take(20), "slow-0002")
}

// TestBacklogLimit has a requester wait without a look for each of its requests, and no other
// requester wait. A certificate to be recorded needs no token of the rate.
func TestBacklogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const second = time.Second
		asked, next := 0, time.Now()
		q := newTestBacklog(Options{Limit: func(requester string) time.Duration {
			asked++
			if requester != "flood" {
				return 0
			}
			if wait := time.Until(next); wait > 0 {
				return wait
			}
			next = time.Now().Add(second)
			return 0
		}})
		defer q.ShutDown()
		q.file(8, ours, "flood")
		q.put(request("signed", builtIn, "c"), 0)
		var at []time.Duration
		began := time.Now()
		for range 10 {
			if len(at) == 3 {
				q.put(filed("newcomer", ours, "another", 0), 0)
			}
			key, _ := q.Get()
			at = append(at, time.Since(began))
			q.Done(key)
		}
		if limit := []time.Duration{0, 0, second, second, 2 * second, 3 * second, 4 * second, 5 * second, 6 * second, 7 * second}; slices.Compare(at, limit) != 0 {
			t.Errorf("looked at after %v, want %v", at, limit)
		}
		if asked > 8+7+1 {
			t.Errorf("asked %d times for 9 requests", asked)
		}
		if len(q.lines) != 0 || len(q.items) != 0 || q.bytes != 0 {
			t.Errorf("left: %d lines, %d items, %d bytes", len(q.lines), len(q.items), q.bytes)
		}
	})
}

// TestBacklogBounds holds no more of one requester, and in all, than there is room for: the
// oldest ones, and something of everybody's.
func TestBacklogBounds(t *testing.T) {
	left := 0
	q := newTestBacklog(Options{LeftOut: func() { left++ }})
	for i := range 30 { // the newest first
		q.put(filed(fmt.Sprintf("%02d", 30-i), ours, "flood", 30-i), 0)
	}
	if len(q.items) != 8 || left != 22 || !q.leftOut(ours) || q.leftOut(ours) || q.leftOut(builtIn) {
		t.Errorf("%d held, %d left out", len(q.items), left)
	}
	q.file(8, ours, "b")
	q.file(8, builtIn, "c")
	if len(q.items) != 20 {
		t.Errorf("%d held, want 20", len(q.items))
	}
	for _, newcomer := range []string{"x", "y", "z"} {
		q.put(filed(newcomer, builtIn, newcomer, 99), 0)
	}
	if len(q.items) != 20 || !q.leftOut(ours) {
		t.Errorf("%d held, want 20, some left out", len(q.items))
	}
	got := q.take(30)
	for _, name := range []string{"x", "y", "z", "01", "b-0000", "c-0000"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not among %q", name, got)
		}
	}
}

// TestBacklogBytes holds large requests by their names alone.
func TestBacklogBytes(t *testing.T) {
	q := newTestBacklog(Options{})
	for i := range 6 {
		o := filed(fmt.Sprint(i), ours, fmt.Sprint("requester-", i/2), i)
		o.Spec.Request = []byte(strings.Repeat("r", 1100))
		q.put(o, 0)
	}
	var held []string
	for _, name := range []string{"0", "1", "2", "3", "4", "5"} {
		if o, ok := q.object(Key{SignerName: ours, Name: name}); o != nil {
			held = append(held, name)
		} else if !ok {
			t.Errorf("%s is not waiting", name)
		}
	}
	want(t, "held", held, "0", "2", "4")
	if q.bytes > q.bounds.bytes || q.bytes < 3*1100 {
		t.Errorf("%d bytes", q.bytes)
	}
	q.done(q.take(9)...)
	if q.bytes != 0 || len(q.lines) != 0 {
		t.Errorf("%d bytes are left, in %d lines", q.bytes, len(q.lines))
	}
}

// TestBacklogChanges has a request looked at once more that changes meanwhile, and nothing
// looked at that is gone or done.
func TestBacklogChanges(t *testing.T) {
	done := NewRecent()
	for name, row := range map[string]struct {
		change func(q *backlog)
		want   []string
	}{
		"nothing":     {func(*backlog) {}, nil},
		"it changes":  {func(q *backlog) { o := filed("n", ours, "r", 0); o.ResourceVersion = "2"; q.put(o, 0) }, []string{"n"}},
		"listed":      {func(q *backlog) { q.put(filed("n", ours, "r", 0), 1); q.listed(ours, 1) }, nil},
		"not listed":  {func(q *backlog) { q.listed(ours, 1) }, nil},
		"deleted":     {func(q *backlog) { q.gone(Key{ours, "n"}) }, nil},
		"made again":  {func(q *backlog) { q.gone(Key{ours, "n"}); q.put(filed("n", ours, "other", 5), 0) }, []string{"n"}},
		"other's now": {func(q *backlog) { q.put(filed("n", ours, "other", 5), 0) }, []string{"n"}},
		"added":       {func(q *backlog) { q.Add(Key{ours, "n"}) }, []string{"n"}},
		"of a stranger": {func(q *backlog) {
			q.Add(Key{ours, "m"})
			q.AddAfter(Key{ours, "m"}, 0)
			q.gone(Key{ours, "m"})
			q.Done(Key{ours, "m"})
		}, nil},
		"another is done": {func(q *backlog) { o := filed("o", ours, "r", 0); done.Add(o); q.put(o, 0) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestBacklog(Options{Done: done})
			*done = *NewRecent()
			first := filed("n", ours, "r", 0)
			first.UID = "first"
			q.put(first, 0)
			want(t, "at first", q.take(9), "n")
			row.change(q)
			want(t, "while it is looked at", q.take(9))
			q.done("n")
			want(t, "then", q.take(9), row.want...)
			q.done("n")
			if len(q.items)+len(q.busy)+len(q.lines)+q.bytes != 0 {
				t.Errorf("left: %d items, %d lines, %d bytes", len(q.items), len(q.lines), q.bytes)
			}
		})
	}
}

// TestBacklogRetry tries failed requests again, at growing intervals, or at once if it changes.
func TestBacklogRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestBacklog(Options{})
		key := Key{ours, "n"}
		q.put(filed("n", ours, "r", 0), 0)
		began := time.Now()
		var at []time.Duration
		for range 12 {
			q.Get()
			at = append(at, time.Since(began).Round(time.Millisecond))
			began = time.Now()
			q.AddRateLimited(key)
			q.Done(key)
		}
		if at[1] != firstRetry || at[2] != 2*firstRetry || at[11] != lastRetry || q.NumRequeues(key) != 12 {
			t.Errorf("looked at after %v, %d times again", at, q.NumRequeues(key))
		}
		changed := filed("n", ours, "r", 0)
		changed.ResourceVersion = "2"
		q.put(changed, 0)
		want(t, "once it has changed", q.take(1), "n")
		q.Forget(key)
		q.AddAfter(key, time.Second)
		q.Done(key)
		q.put(changed, 1)
		want(t, "listed as it was", q.take(1))
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "after a second", q.take(1), "n")
		q.AddAfter(key, time.Second)
		q.gone(key)
		q.Done(key)
		time.Sleep(2 * time.Second)
		if len(q.items)+q.Len() != 0 || q.ShuttingDown() {
			t.Error("it is still there")
		}
		over := make(chan bool)
		go func() { _, ended := q.Get(); over <- ended }()
		synctest.Wait()
		q.ShutDownWithDrain()
		if !<-over || !q.ShuttingDown() {
			t.Error("it does not end")
		}
	})
}
