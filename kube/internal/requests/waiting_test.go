package requests

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestWaiting: the metrics count the requests that are not decided, and say since when the oldest waits.
func TestWaiting(t *testing.T) {
	q := newTestBacklog(Options{Name: "c"})
	r := prometheus.NewRegistry()
	testkit.MustDo(q.register(r))
	testkit.MustDo(q.register(nil))
	check := func(n, since string) {
		t.Helper()
		want := "# HELP nodeattest_requests_waiting Requests that the leading replica has listed and not decided, or that wait to be tried again.\n" +
			"# TYPE nodeattest_requests_waiting gauge\nnodeattest_requests_waiting{controller=\"c\"} " + n + "\n" +
			"# HELP nodeattest_requests_waiting_since_seconds When the oldest request that waits was filed, in seconds since 1970; 0 if none waits.\n" +
			"# TYPE nodeattest_requests_waiting_since_seconds gauge\nnodeattest_requests_waiting_since_seconds{controller=\"c\"} " + since + "\n"
		if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	check("0", "0")
	a, b := filed("a", ours, "requester", 50), filed("b", ours, "requester", 40)
	a.UID, b.UID = "uid-a", "uid-b"
	q.put(a, 0)
	q.put(b, 0)
	check("2", "40")
	q.opts.Done.Add(b) // its watch event has not come yet
	check("1", "50")
	q.gone(Key{SignerName: ours, Name: "a"})
	q.gone(Key{SignerName: ours, Name: "b"})
	check("0", "0")
	if err := q.register(r); err == nil {
		t.Error("registered twice")
	}
}
