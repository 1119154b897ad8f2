package bypass

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

// interval is how often a [Watch] looks; after a failure it looks ten times as often.
const interval = 30 * time.Second

// again is how often it reports a way around that stays: Events are kept for an hour by default.
const again = time.Hour

// reasonFound is the reason in a [Watch]'s Events.
const reasonFound = "WayAroundAttestation"

// WatchConfig is the configuration of a [Watch]. Finder has no default.
type WatchConfig struct {
	Finder *Finder

	// Events is where an Event about each binding goes when it is first found, and each hour while
	// it stays; nil: nowhere.
	Events events.EventRecorder
	// Metrics is where the gauges nodeattest_ways_around and nodeattest_ways_around_looked_seconds
	// are registered; nil: nowhere. Two in one process, for two clusters, take one with labels each
	// (prometheus.WrapRegistererWith).
	Metrics prometheus.Registerer
	// InsecureAllow has [Watch.Check] pass although there are ways around attestation, or
	// although a look for them has failed. They are still reported.
	InsecureAllow bool
}

// Watch looks for ways around attestation continuously. It is a manager.Runnable that runs in
// every replica.
type Watch struct {
	c      WatchConfig
	gauge  *prometheus.GaugeVec
	looked prometheus.Gauge
	mu     sync.Mutex
	err    error
	told   map[Finding]time.Time
}

var errNotLooked = errors.New("bypass: the first look for ways around attestation has not ended")

// NewWatch checks the configuration. The error is refusal.CheckConfig, or the registerer's.
func NewWatch(config WatchConfig) (*Watch, error) {
	if !config.Finder.made() {
		return nil, refusal.Config("Finder", "", "one of NewFinder")
	}
	w := &Watch{c: config, err: errNotLooked, told: map[Finding]time.Time{}, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nodeattest_ways_around",
		Help: "Rights by which an account becomes a node without attestation and that no admission policy guards, by way.",
	}, []string{"way"}), looked: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nodeattest_ways_around_looked_seconds",
		Help: "When ways around attestation were last looked for without a failure, in seconds since 1970; 0: not yet.",
	})}
	if config.Metrics == nil {
		return w, nil
	}
	return w, errors.Join(config.Metrics.Register(w.gauge), config.Metrics.Register(w.looked))
}

func (w *Watch) made() bool { return w != nil && w.c.Finder.made() }

// NeedLeaderElection says that every replica looks: each has its own readiness.
func (*Watch) NeedLeaderElection() bool { return false }

// Start looks until ctx ends.
func (w *Watch) Start(ctx context.Context) error { //goroutine: the API server's client alone
	if !w.made() {
		return errNotMade
	}
	for {
		pause := interval
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "failed to look for ways around attestation; it is tried again")
			pause /= 10
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Look looks once, and reports the findings. It returns the error of [Finder.Find].
func (w *Watch) Look(ctx context.Context) error {
	if !w.made() {
		return errNotMade
	}
	findings, err := w.c.Finder.Find(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = err
		return err
	}
	w.err = nil
	now := time.Now()
	w.looked.Set(float64(now.Unix()))
	texts := make([]string, 0, len(findings))
	counts := map[Way]int{}
	before := w.told
	w.told = make(map[Finding]time.Time, len(findings))
	for i := range findings {
		f := &findings[i]
		if !f.Guarded {
			texts = append(texts, f.String())
			counts[f.Way]++
		}
		told, was := before[*f]
		if !was || now.Sub(told) >= again {
			told = now
			w.tell(ctx, f)
		}
		w.told[*f] = told
	}
	for f := range before {
		if _, is := w.told[f]; !is {
			log.FromContext(ctx).Info("a way around attestation is gone", "way", string(f.Way), "finding", f.String())
		}
	}
	for _, way := range ways() {
		w.gauge.WithLabelValues(string(way)).Set(float64(counts[way]))
	}
	if len(texts) != 0 {
		w.err = fmt.Errorf("bypass: %d ways around attestation: %s", len(texts), strings.Join(slices.Compact(texts), "; "))
	}
	return nil
}

func (w *Watch) tell(ctx context.Context, f *Finding) {
	log.FromContext(ctx).Info("a way around attestation", "way", string(f.Way), "subject", f.Subject, "right", f.Right,
		"binding", f.Binding, "role", f.Role, "namespace", f.Namespace, "why", f.Reason, "guarded", f.Guarded, "allowed", w.c.InsecureAllow)
	if w.c.Events == nil || f.Binding == "" {
		return
	}
	// Without its namespace, so that the Event goes to the default one, where the right to create it
	// is: its note names the namespace.
	about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: f.Binding}}
	switch {
	case f.Way == wayAdmission:
		about.SetGroupVersionKind(policyKind)
	case f.Namespace != "":
		about.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	default:
		about.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
	}
	w.c.Events.Eventf(about, nil, corev1.EventTypeWarning, reasonFound, "Find", "%s", requests.Note(f.String()))
}

// Check is a readiness check (healthz.Checker). It returns an error while there is a way
// around, or while it is not known whether there is one.
func (w *Watch) Check(*http.Request) error {
	if !w.made() {
		return errNotLooked
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c.InsecureAllow && !errors.Is(w.err, errNotLooked) {
		return nil
	}
	return w.err
}
