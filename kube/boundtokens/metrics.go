package boundtokens

import (
	"errors"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// Values of the labels check and result.
const (
	labelAccepted = "accepted"
	labelRefused  = "refused"
	labelRetry    = "retry"
	// labelOther stands for a check beyond maxChecks, and for a refusal without one.
	labelOther = "other"
)

// maxChecks is how many checks have a series of their own: there are about fifty, and a Review or a
// FindMachine of the caller's may make more.
const maxChecks = 128

// NewObserver registers metrics with r and returns the function that counts a decision in them, for
// [claims.HandlerOptions] Observe. It is safe for concurrent use.
//
//	nodeattest_token_decisions_total{protocol, check}           counter
//	nodeattest_token_decision_seconds{protocol, result}         histogram
//
// protocol is that of the handler, such as "http" or "grpc": each handler of a service has an observer
// with another one. check is "accepted", "retry" where an answer of the API server is missing
// ([refusal.ErrRetry]), or else the name of the check that refused the token or the machine, as the
// caller gets it; the 129th name and all later ones are "other". result is "accepted", "refused" or
// "retry". No label has the name of a workload or a node.
//
// Without r, with a protocol that is empty or not UTF-8, the error has [refusal.CheckConfig]. One of
// the registerer, such as for a second observer of a protocol, is returned as it is.
func NewObserver(r prometheus.Registerer, protocol string) (func(err error, took time.Duration), error) {
	switch {
	case r == nil:
		return nil, refusal.Config("Registerer", "", "that of the service's metrics")
	case protocol == "" || !utf8.ValidString(protocol):
		return nil, refusal.Config("protocol", refusal.Text(protocol), "the handler's, such as http")
	}
	o := &observer{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeattest_token_decisions_total",
			Help: "Decisions about calls with a token from an attested node, by check: accepted, retry, or the check that refused.",
		}, []string{"check"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "nodeattest_token_decision_seconds",
			Help:    "How long decisions about calls with a token from an attested node took, by result (accepted, refused, retry).",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"result"}),
	}
	r = prometheus.WrapRegistererWith(prometheus.Labels{"protocol": protocol}, r)
	for _, c := range []prometheus.Collector{o.decisions, o.seconds} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for _, check := range []string{labelAccepted, labelRetry} { // so that a rate is known from the start
		o.decisions.WithLabelValues(check)
	}
	return o.observe, nil
}

// observer are the metrics of a handler.
type observer struct {
	decisions *prometheus.CounterVec
	seconds   *prometheus.HistogramVec

	mu     sync.Mutex
	checks []string // sorted; each has a series
}

func (o *observer) observe(err error, took time.Duration) {
	check, result := labelAccepted, labelAccepted
	switch {
	case errors.Is(err, refusal.ErrRetry):
		check, result = labelRetry, labelRetry
	case err != nil:
		check, result = o.check(err), labelRefused
	}
	o.decisions.WithLabelValues(check).Inc()
	o.seconds.WithLabelValues(result).Observe(took.Seconds())
}

// check returns the label for the check of a refusal.
func (o *observer) check(err error) string {
	refused, ok := errors.AsType[*claims.Error](err)
	if !ok || refused.Check == "" || !utf8.ValidString(string(refused.Check)) {
		return labelOther
	}
	check := string(refused.Check)
	o.mu.Lock()
	defer o.mu.Unlock()
	at, known := slices.BinarySearch(o.checks, check)
	switch {
	case known:
	case len(o.checks) == maxChecks:
		return labelOther
	default:
		o.checks = slices.Insert(o.checks, at, check)
	}
	return check
}
