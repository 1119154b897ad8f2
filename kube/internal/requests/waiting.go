package requests

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// waiting returns how many requests wait to be decided, or to be tried again, and when the oldest was filed.
func (q *backlog) waiting() (n int, oldest time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range q.items {
		if q.opts.Done != nil && q.opts.Done.has(it.uid) {
			continue
		}
		if n++; oldest.IsZero() || it.created.Before(oldest) {
			oldest = it.created
		}
	}
	return n, oldest
}

// register has two metrics say how many requests wait, and for how long.
func (q *backlog) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	r = prometheus.WrapRegistererWith(prometheus.Labels{"controller": q.opts.Name}, r)
	if err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodeattest_requests_waiting",
		Help: "Requests that the leading replica has listed and not decided, or that wait to be tried again.",
	}, func() float64 {
		n, _ := q.waiting()
		return float64(n)
	})); err != nil {
		return err
	}
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodeattest_requests_waiting_since_seconds",
		Help: "When the oldest request that waits was filed, in seconds since 1970; 0 if none waits.",
	}, func() float64 {
		n, oldest := q.waiting()
		if n == 0 {
			return 0
		}
		return float64(oldest.Unix())
	}))
}
