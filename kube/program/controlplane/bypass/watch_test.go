package bypass

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestWatchTellsAgain: a way around that stays is told of each hour, and the metrics say when a look
// has last succeeded.
func TestWatchTellsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, role("r", rule("impersonate", "", "users")), binding("b", "r", subject("Group", "g")))
		f := testkit.Must(NewFinder(Config{Reader: c, Writer: c}))
		events, metrics := new(recorder), prometheus.NewRegistry()
		w := testkit.Must(NewWatch(WatchConfig{Finder: f, Events: events, Metrics: metrics}))
		for _, name := range []string{"nodeattest_ways_around", "nodeattest_ways_around_looked_seconds"} {
			taken := prometheus.NewRegistry()
			testkit.MustDo(taken.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "taken"})))
			if _, err := NewWatch(WatchConfig{Finder: f, Metrics: taken}); err == nil {
				t.Errorf("%s is registered by another: no error", name)
			}
		}
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 3*again+interval/2)
		defer stop()
		testkit.MustDo(w.Start(ctx))
		if len(events.about) != 4 {
			t.Errorf("%d Events in three hours, want 4", len(events.about))
		}
		looked := testutil.ToFloat64(w.looked)
		if want := float64(began.Add(3 * again).Unix()); looked != want {
			t.Errorf("looked at %f, want %f", looked, want)
		}
		c.broken = errors.New("no answer")
		time.Sleep(interval)
		if err := w.Look(t.Context()); err == nil || testutil.ToFloat64(w.looked) != looked {
			t.Errorf("after a look that fails: %v, looked at %f", err, testutil.ToFloat64(w.looked))
		}
	})
}
