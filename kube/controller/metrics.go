package controller

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// metrics are the counters of a reconciler. Labels have few values: they contain neither node
// names nor requesters.
type metrics struct {
	decisions *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	conflicts prometheus.Counter
	limited   prometheus.Counter
	leftOut   prometheus.Counter
	recorded  *prometheus.CounterVec
	// challenges are counted by kind and outcome.
	challenges *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, name string) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeattest_decisions_total",
			Help: "Decisions about certificate requests, by message (hello, answer, serving), kind of evidence (none, other), signer, verdict and reason, which names the rule that was broken.",
		}, []string{"message", "kind", "signer", "verdict", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "nodeattest_decision_seconds",
			Help:    "How long decisions took, without the time to write them, by message and kind of evidence.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"message", "kind"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeattest_write_conflicts_total",
			Help: "Decisions that were not written because the request had changed.",
		}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeattest_rate_limited_total",
			Help: "How often a requester's requests had to wait for its rate.",
		}),
		leftOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodeattest_requests_left_out_total",
			Help: "Requests that were left for a later list because there were too many, of their requester or of all.",
		}),
		recorded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeattest_certificates_total",
			Help: "Certificates of other signers for requests that were approved, by result (recorded, forgotten, refused).",
		}, []string{"result"}),
		challenges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeattest_challenges_total",
			Help: "Challenges by kind of evidence and by state: issued, answered in time, or expired, when the answer came late.",
		}, []string{"kind", "state"}),
	}
	if r == nil {
		return m, nil
	}
	r = prometheus.WrapRegistererWith(prometheus.Labels{"controller": name}, r)
	for _, c := range []prometheus.Collector{m.decisions, m.seconds, m.conflicts, m.limited, m.leftOut, m.recorded, m.challenges} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// decided counts a decision that is based on err.
func (m *metrics) decided(what message, kind, signer string, d *csr.Decision, err error, took time.Duration) {
	m.decisions.WithLabelValues(string(what), kind, signer, d.Verdict.String(), d.Reason).Inc()
	m.seconds.WithLabelValues(string(what), kind).Observe(took.Seconds())
	if what != messageAnswer || d.Verdict == csr.VerdictRetry || kind == kindNone || kind == kindOther {
		return
	}
	if errors.Is(err, attest.CheckAnswerLate) || errors.Is(err, attest.CheckAnswerOld) {
		m.challenges.WithLabelValues(kind, "expired").Inc()
	} else {
		m.challenges.WithLabelValues(kind, "answered").Inc()
	}
}

// Labels for requests without evidence, and of a kind that is not served: a requester can write
// any name.
const (
	kindNone  = "none"
	kindOther = "other"
)

// kindOf returns the kind of evidence in a request, for a label.
func (r *Reconciler) kindOf(request *csr.Request) string {
	bundle, err := request.Parsed().Bundle()
	switch {
	case err != nil:
		return kindOther
	case bundle.Provider == "":
		return kindNone
	}
	name, _, err := bundle.ProviderVersion()
	if err != nil {
		return kindOther
	}
	if signer, err := csr.SignerChallenge(name); err != nil || r.signers[signer] != messageHello {
		return kindOther
	}
	return name
}
