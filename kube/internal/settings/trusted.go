package settings

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// trusting is a kind of evidence that depends on root certificates, which expire, or on fetched keys or
// intermediates.
type trusting struct {
	attest.Kind
	roots []*x509.Certificate
	fetch func(context.Context) error // nil: it fetches nothing
}

// check refuses a kind none of whose roots is valid: it could never accept anything.
func (k *trusting) check(now time.Time) error {
	if _, valid := k.ends(now); len(k.roots) == 0 || valid {
		return nil
	}
	last := k.roots[0].NotAfter
	return refusal.Config("rootsFile", fmt.Sprintf("%d certificates, none of them valid now, such as one until %s", len(k.roots), last.UTC().Format(time.DateOnly)), "roots that are valid")
}

// ends is when the first of the roots that are valid at a time ends, if any is.
func (k *trusting) ends(now time.Time) (end time.Time, valid bool) {
	for _, c := range k.roots {
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			continue
		}
		if !valid || c.NotAfter.Before(end) {
			end = c.NotAfter
		}
		valid = true
	}
	return end, valid
}

// Trust checks from time to time that the kinds of evidence can fetch their keys and intermediates, and
// that their roots have not expired. It is a manager.Runnable.
type Trust struct {
	kinds  map[string]*trusting
	now    func() time.Time
	fetch  *prometheus.GaugeVec
	expiry *prometheus.GaugeVec

	mu     sync.Mutex
	never  map[string]error // why a kind has not yet been able to fetch
	failed map[string]string
	warned time.Time
}

const (
	trustInterval = 5 * time.Minute
	// retryInterval is how soon a failed fetch is tried again.
	retryInterval = 30 * time.Second
	// soon is how long before a root expires a daily warning is logged.
	soon = 90 * 24 * time.Hour
)

// Trust returns the watch of the kinds that [Settings.Kinds] made last.
func (s *Settings) Trust(metrics prometheus.Registerer) (*Trust, error) {
	t := &Trust{kinds: s.trusting, now: s.clock, never: map[string]error{}, failed: map[string]string{}, fetch: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nodeattest_fetch_ok",
		Help: "Whether what a kind of evidence fetches (Google's keys, Azure's intermediates) could be fetched when it was last tried, by kind.",
	}, []string{"kind"}), expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nodeattest_root_not_after_seconds",
		Help: "When the first of the roots ends that are valid now, by kind of evidence, in seconds since 1970; 0 if none is valid.",
	}, []string{"kind"})}
	for name, kind := range t.kinds {
		if kind.fetch != nil {
			t.never[name] = fmt.Errorf("%s: signing keys or intermediates have not been fetched yet", name)
		}
	}
	return t, errors.Join(metrics.Register(t.fetch), metrics.Register(t.expiry))
}

// NeedLeaderElection says that every replica looks: each has its own network and readiness.
func (*Trust) NeedLeaderElection() bool { return false }

// Start looks until ctx ends.
func (t *Trust) Start(ctx context.Context) error { //goroutine: calls fetchers through package recovered
	for {
		pause := trustInterval
		if !t.Look(ctx) {
			pause = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Look looks once, and reports whether everything could be fetched.
func (t *Trust) Look(ctx context.Context) bool {
	all := true
	for name, kind := range t.kinds {
		if kind.fetch != nil {
			err := recovered.Call(func() error { return kind.fetch(ctx) })
			if ctx.Err() != nil {
				return false
			}
			all = all && err == nil
			t.fetched(ctx, name, err)
		}
	}
	t.lookAtRoots(ctx)
	return all
}

// fetched notes how a fetch ended, and logs each new error once.
func (t *Trust) fetched(ctx context.Context, name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.fetch.WithLabelValues(name).Set(1)
		delete(t.never, name)
		if t.failed[name] != "" {
			log.FromContext(ctx).Info("signing keys or intermediates were fetched again", "kind", name)
		}
		t.failed[name] = ""
		return
	}
	t.fetch.WithLabelValues(name).Set(0)
	if t.never[name] != nil {
		t.never[name] = fmt.Errorf("%s: signing keys or intermediates cannot be fetched: %w", name, err)
	}
	if t.failed[name] != err.Error() {
		t.failed[name] = err.Error()
		log.FromContext(ctx).Error(err, "failed to fetch signing keys or intermediates; requests of this kind will be retried", "kind", name)
	}
}

// lookAtRoots says once a day which roots have ended or will end soon.
func (t *Trust) lookAtRoots(ctx context.Context) {
	now := t.now()
	warn := now.Sub(t.warned) >= 24*time.Hour
	if warn {
		t.warned = now
	}
	for name, kind := range t.kinds {
		if len(kind.roots) == 0 {
			continue
		}
		end, valid := kind.ends(now)
		t.expiry.WithLabelValues(name).Set(0)
		if valid {
			t.expiry.WithLabelValues(name).Set(float64(end.Unix()))
		}
		for _, c := range kind.roots {
			if warn && now.Add(soon).After(c.NotAfter) {
				log.FromContext(ctx).Info("root certificate expires soon or has expired", "kind", name, "root", refusal.Text(c.Subject.String()), "end", c.NotAfter.UTC())
			}
		}
	}
}

// Check is a readiness check (healthz.Checker). It returns an error until each kind that
// fetches something has been able to do so once: a later failure is for the metric and the
// log, since fetched keys are kept for a while.
func (t *Trust) Check(*http.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, err := range t.never {
		return err
	}
	return nil
}
