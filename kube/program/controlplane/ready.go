package controlplane

import (
	"context"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// start runs a manager with runnables and readiness checks until ctx ends.
func start(ctx context.Context, m manager.Manager, runnables []manager.Runnable, checks map[string]healthz.Checker) error {
	for _, r := range runnables {
		if err := m.Add(r); err != nil {
			return err
		}
	}
	for name, check := range checks {
		if err := addReady(m, name, check); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// addReady has the program be ready only while a check passes.
func addReady(m manager.Manager, name string, check healthz.Checker) error {
	return m.AddReadyzCheck(name, logged(m.GetLogger(), name, check))
}

// logged logs why a check fails, under its name: once for each reason, and when it passes again.
// A manager's own log and its answer to a probe do not say why.
func logged(log logr.Logger, name string, check healthz.Checker) healthz.Checker {
	var mu sync.Mutex
	said := ""
	return func(r *http.Request) error {
		err := check(r)
		why := ""
		if err != nil {
			why = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case why == said:
		case why == "":
			log.Info("readiness check passes again", "check", name)
		default:
			log.Info("not ready", "check", name, "why", why)
		}
		said = why
		return err
	}
}
