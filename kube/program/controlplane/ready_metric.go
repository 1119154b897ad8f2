package controlplane

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// readiness has each readiness check of a program as a metric, since the probes tell the kubelet alone.
type readiness struct {
	*probed
	desc *prometheus.Desc
}

func newReadiness(p *probed) readiness {
	return readiness{p, prometheus.NewDesc("nodeattest_ready", "Whether a readiness check passes, by check: 1 or 0. The log says why one does not.", []string{"check"}, nil)}
}

// Describe sends the metric's description.
func (r readiness) Describe(to chan<- *prometheus.Desc) { to <- r.desc }

// Collect runs the checks.
func (r readiness) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	for name, check := range r.ready.Checks {
		passes := 0.0
		if check((&http.Request{}).WithContext(ctx)) == nil {
			passes = 1
		}
		to <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, passes, name)
	}
}
