package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodeattest/nodeattest/csr"
)

// metrics are the counters of a reconciler. Labels have few values: no node's name, no
// requester's.
type metrics struct {
	decisions *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	conflicts prometheus.Counter
	limited   prometheus.Counter
	recorded  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeattest_decisions_total",
			Help: "Decisions about certificate requests, by message (hello, answer, serving), signer, verdict and reason.",
		}, []string{"message", "signer", "verdict", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "nodeattest_decision_seconds",
			Help:    "How long a decision took, its write excluded, by message.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"message"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeattest_write_conflicts_total",
			Help: "Decisions that were not written, since the request had changed.",
		}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeattest_rate_limited_total",
			Help: "Requests that had to wait for their requester's rate.",
		}),
		recorded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeattest_certificates_total",
			Help: "Certificates of other signers for requests that were approved, by result (recorded, refused).",
		}, []string{"result"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.decisions, m.seconds, m.conflicts, m.limited, m.recorded} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) decided(what message, signer string, d *csr.Decision, took time.Duration) {
	m.decisions.WithLabelValues(string(what), signer, d.Verdict.String(), d.Reason).Inc()
	m.seconds.WithLabelValues(string(what)).Observe(took.Seconds())
}
