package controlplane

import (
	"context"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/kube/internal/httpserver"
)

// nowhere is the address at which nothing listens.
const nowhere = "0"

// scrapes is how many requests for metrics are replied to at a time: others get 503.
const scrapes = 4

// probed is a manager whose probes and metrics are served within limits. The servers of a
// controller-runtime manager have none, and keep 1 MiB of headers for each connection.
type probed struct {
	manager.Manager
	healthy, ready *healthz.Handler
}

func newProbed(m manager.Manager) *probed {
	return &probed{m, &healthz.Handler{Checks: map[string]healthz.Checker{}}, &healthz.Handler{Checks: map[string]healthz.Checker{}}}
}

// AddHealthzCheck adds a check of /healthz, before the manager starts.
func (p *probed) AddHealthzCheck(name string, check healthz.Checker) error {
	p.healthy.Checks[name] = check
	return nil
}

// AddReadyzCheck adds a check of /readyz, before the manager starts.
func (p *probed) AddReadyzCheck(name string, check healthz.Checker) error {
	p.ready.Checks[name] = check
	return nil
}

// addServers has the manager listen. Each address may be nowhere.
func (p *probed) addServers(metricsAddress, healthAddress string) error {
	probes, scraped := http.NewServeMux(), http.NewServeMux()
	for path, h := range map[string]http.Handler{"/healthz": p.healthy, "/readyz": p.ready} {
		probes.Handle(path, http.StripPrefix(path, h))
		probes.Handle(path+"/", http.StripPrefix(path, h))
	}
	scraped.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: scrapes}))
	for _, s := range []struct {
		name, address string
		handler       http.Handler
		limits        httpserver.Limits
	}{
		{"health probe", healthAddress, probes, httpserver.Probes},
		{"metrics", metricsAddress, scraped, httpserver.Metrics},
	} {
		if s.address == nowhere {
			continue
		}
		l, err := s.limits.Listen(context.Background(), s.address)
		if err != nil {
			return err
		}
		served := &manager.Server{Name: s.name, Listener: l, ShutdownTimeout: &s.limits.Patience,
			Server: httpserver.New(s.handler, s.limits, logr.ToSlogHandler(p.GetLogger()))}
		if err := p.Add(served); err != nil {
			return err
		}
	}
	return nil
}
