package controlplane

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// addTrust adds the watch of roots and fetches, after the kinds of evidence were made.
func addTrust(m manager.Manager, s *settings.Settings) error {
	trust, err := s.Trust(metrics.Registry)
	if err != nil {
		return err
	}
	if err := m.Add(trust); err != nil {
		return err
	}
	return addReady(m, "trust", trust.Check)
}
