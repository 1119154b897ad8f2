package program

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// How often a kind of evidence is asked whether it works, how long one answer may take, and how
// soon it is asked again if it does not.
const (
	evidenceInterval = time.Minute
	evidenceAgain    = 10 * time.Second
)

// evidence follows whether a kind of evidence works, such as whether its platform's keys can be
// fetched, from the start on: for readiness, and for the log. It is a manager.Runnable.
type evidence struct {
	kind  string
	ready func(ctx context.Context) error

	mu  sync.Mutex
	err error
}

// addEvidence has a manager follow the kinds that can say whether they work.
func addEvidence(m manager.Manager, providers *settings.Providers) error {
	for kind, ready := range providers.Ready() {
		e := &evidence{kind: kind, ready: ready, err: errNotAsked}
		if err := m.Add(e); err != nil {
			return err
		}
		if err := m.AddReadyzCheck("evidence-"+kind, e.check); err != nil {
			return err
		}
	}
	return nil
}

var errNotAsked = errors.New("it is not known yet whether this kind of evidence works")

// NeedLeaderElection says that every replica follows it.
func (*evidence) NeedLeaderElection() bool { return false }

// Start follows it until ctx ends.
func (e *evidence) Start(ctx context.Context) error {
	for {
		next := evidenceInterval
		if e.ask(ctx) != nil {
			next = evidenceAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
	}
}

// ask asks once, and logs what has changed.
func (e *evidence) ask(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, evidenceInterval)
	defer cancel()
	err := e.ready(asking)
	if ctx.Err() != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	logger := log.FromContext(ctx).WithValues("kind", e.kind)
	switch {
	case err == nil && e.err != nil:
		logger.Info("this kind of evidence can be verified")
	case err != nil && (e.err == nil || e.err.Error() != err.Error()):
		logger.Error(err, "this kind of evidence cannot be verified: its nodes wait")
	}
	e.err = err
	return err
}

func (e *evidence) check(*http.Request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}
