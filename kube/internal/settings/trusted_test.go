package settings

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestTrust has a kind that cannot fetch: it is not ready until it could once, and the metric
// and the log say so each time.
func TestTrust(t *testing.T) {
	start := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	now := start
	root := func(end time.Time) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: "Root until " + end.Format(time.DateOnly)}, NotBefore: start.AddDate(-1, 0, 0), NotAfter: end}
	}
	var down error
	s := &Settings{now: func() time.Time { return now }, trusting: map[string]*trusting{
		"fetches": {fetch: func(context.Context) error { return down }},
		"one":     {roots: []*x509.Certificate{root(start.AddDate(1, 0, 0))}},
		"roots":   {roots: []*x509.Certificate{root(start.AddDate(1, 0, 0)), root(start.AddDate(0, 4, 0)), root(start.AddDate(0, 0, -1))}},
	}}
	metrics := prometheus.NewRegistry()
	trust := testkit.Must(s.Trust(metrics))
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	if err := trust.Check(nil); err == nil {
		t.Error("ready before it has looked")
	}
	for n, c := range []struct {
		down        error
		later       time.Duration
		ready       bool
		fetched     float64
		end         time.Time
		says, never string
	}{
		{errors.New("unknown authority"), 0, false, 0, start.AddDate(0, 4, 0), "unknown authority", "again"},
		{errors.New("unknown authority"), time.Minute, false, 0, start.AddDate(0, 4, 0), "", "unknown authority"},
		{nil, time.Minute, true, 1, start.AddDate(0, 4, 0), "fetched again", ""},
		{errors.New("no route"), time.Minute, true, 0, start.AddDate(0, 4, 0), "no route", ""},
		{errors.New("no route"), 2 * 31 * 24 * time.Hour, true, 0, start.AddDate(0, 4, 0), "Root until 2027-03-22", "Root until 2027-11-22"},
		{errors.New("no route"), time.Hour, true, 0, start.AddDate(0, 4, 0), "", "Root"},
		{nil, 100 * 24 * time.Hour, true, 1, start.AddDate(1, 0, 0), "Root until 2027-03-22", ""},
	} {
		logged, down, now = nil, c.down, now.Add(c.later)
		if ok := trust.Look(ctx); ok != (c.down == nil) {
			t.Errorf("%d: fetched: %t", n, ok)
		}
		if err := trust.Check(nil); (err == nil) != c.ready || err != nil && !errors.Is(err, c.down) {
			t.Errorf("%d: ready: %v", n, err)
		}
		if got := testutil.ToFloat64(trust.fetch.WithLabelValues("fetches")); got != c.fetched {
			t.Errorf("%d: fetched %v", n, got)
		}
		if got := testutil.ToFloat64(trust.expiry.WithLabelValues("roots")); got != float64(c.end.Unix()) {
			t.Errorf("%d: ends %v, want %s", n, time.Unix(int64(got), 0).UTC(), c.end)
		}
		if got := testutil.ToFloat64(trust.expiry.WithLabelValues("one")); got != float64(start.AddDate(1, 0, 0).Unix()) {
			t.Errorf("%d: the one root ends %v", n, time.Unix(int64(got), 0).UTC())
		}
		text := strings.Join(logged, "\n")
		if !strings.Contains(text, c.says) || c.never != "" && strings.Contains(text, c.never) || c.says == "" && n != 1 && text != "" {
			t.Errorf("%d: logged %q, want %q and not %q", n, text, c.says, c.never)
		}
	}
	now = start.AddDate(2, 0, 0)
	trust.Look(ctx)
	if got := testutil.ToFloat64(trust.expiry.WithLabelValues("roots")); got != 0 {
		t.Errorf("after all have ended: %v", got)
	}
	if n := testutil.CollectAndCount(trust.expiry); n != 2 {
		t.Errorf("%d kinds with roots, want 2", n)
	}
	if _, err := s.Trust(metrics); err == nil {
		t.Error("two in one registry")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	down = context.Canceled
	if trust.Look(ended) || testutil.ToFloat64(trust.fetch.WithLabelValues("fetches")) != 1 {
		t.Error("a look that was cut off is taken for a failure")
	}
	future := &trusting{roots: []*x509.Certificate{{NotBefore: now.Add(time.Second), NotAfter: now.AddDate(1, 0, 0)}}}
	if err := future.check(now); !errors.Is(err, refusal.CheckConfig) || future.check(now.Add(time.Second)) != nil {
		t.Errorf("a root of later: %v, then %v", err, future.check(now.Add(time.Second)))
	}
	if trust.NeedLeaderElection() || trust.Start(ended) != nil {
		t.Error("Start")
	}
}

// TestTrustOfKinds: which kinds depend on what.
func TestTrustOfKinds(t *testing.T) {
	w := newWorld(t)
	s, err := w.settings()
	if err == nil {
		_, err = s.Kinds()
	}
	if err != nil {
		t.Fatal(err)
	}
	trust, err := s.Trust(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if !trust.Look(t.Context()) || trust.Check(nil) != nil { // Google's keys, from their file
		t.Errorf("%v", trust.Check(nil))
	}
	for kind, want := range map[string][2]bool{"tpm": {}, "gce": {false, true}, "azure": {true, false}, "nitro": {true, false}, "ec2": {true, false}} {
		k := trust.kinds[kind]
		if got := [2]bool{k != nil && len(k.roots) > 0, k != nil && k.fetch != nil}; got != want {
			t.Errorf("%s: has roots and fetches: %v, want %v", kind, got, want)
		}
	}
	s, err = w.settings("keysFile: @/keys.json", "keysURL: '"+gce.KeysURL+"'", "intermediatesFile: @/intermediates.pem", "fetchIntermediates: true")
	if err == nil {
		_, err = s.Kinds()
	}
	if err != nil || s.trusting["gce"].fetch == nil || s.trusting["azure"].fetch == nil {
		t.Errorf("over the network: %v", err)
	}
	if _, err := s.At(time.Now().AddDate(100, 0, 0)).Kinds(); err == nil || !strings.Contains(err.Error(), "rootsFile") {
		t.Errorf("in a hundred years: %v", err)
	}
}

// TestTrustFetchPanics: a panic of a fetcher is a failed fetch, not the end of the program, in whose
// goroutine it looks.
func TestTrustFetchPanics(t *testing.T) {
	panics := true
	s := &Settings{now: time.Now, trusting: map[string]*trusting{"fetches": {fetch: func(context.Context) error {
		if panics {
			panic("a bug of a fetcher")
		}
		return nil
	}}}}
	trust := testkit.Must(s.Trust(prometheus.NewRegistry()))
	if trust.Look(t.Context()) || trust.Check(nil) == nil {
		t.Error("fetched, or ready, after a panic")
	}
	if panics = false; !trust.Look(t.Context()) || trust.Check(nil) != nil {
		t.Error("the next look")
	}
}
