package settings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// Machines is an inventory that follows changes of its file, or of the files in its folder. It is a
// manager.Runnable. Machines are found while it is read: the new inventory replaces the old one at once.
type Machines struct {
	settings *Settings
	parts    []*part
	failed   error           // why the parts could not be listed
	reported map[string]bool // the problems that are in the log
	listed   atomic.Pointer[Listed]
}

// inventoryInterval is how often the files are checked. A file in a ConfigMap is up to a minute
// late anyway.
const inventoryInterval = 5 * time.Second

// OpenInventory reads the inventory. A file that cannot be read is an error, and so is a folder that cannot be listed.
// A part of a folder that cannot be read is not: the program serves the machines of the others. Machines of Cluster API
// are in none, which is an error.
func (s *Settings) OpenInventory() (*Machines, error) {
	if s.Inventory.ClusterAPI != nil {
		return nil, refusal.Config("inventory", "clusterAPI", "file: Machines are on the management cluster, where only the controller and the signer read them")
	}
	m := &Machines{settings: s}
	m.read()
	if err := m.failed; err != nil {
		return nil, fmt.Errorf("settings: inventory: %w", err)
	}
	if only := m.parts[0]; only.whole && only.err != nil {
		return nil, fmt.Errorf("settings: inventory %s: %w", s.Inventory.File, only.err)
	}
	return m, nil
}

// read reads the files that have changed, and reports whether the inventory has. While the parts cannot be listed, it has
// the last parts, and another one that cannot be read.
func (m *Machines) read() (changed bool) {
	parts, err := m.settings.readParts(m.parts)
	if err != nil {
		changed, m.failed = m.failed == nil || m.failed.Error() != err.Error(), err
		parts = append(slices.Clone(m.parts), &part{name: m.settings.Inventory.File, err: err})
	} else {
		changed, m.failed = m.failed != nil || !slices.Equal(parts, m.parts), nil
		m.parts = parts
	}
	if changed {
		m.listed.Store(merge(parts))
	}
	return changed
}

// NeedLeaderElection says that every replica follows the files.
func (*Machines) NeedLeaderElection() bool { return false }

// Start follows the files until ctx ends. While a part cannot be read, its machines stay as they
// were last read.
func (m *Machines) Start(ctx context.Context) error { //goroutine: reads the files of machines
	m.report(ctx)
	files.Follow(ctx, inventoryInterval, "the inventory", func() error {
		if m.read() {
			m.report(ctx)
		}
		return nil
	})
	return nil
}

// maxReports is how many problems are logged when an inventory has been read. The metrics count all.
const maxReports = 16

// report logs that the inventory was read, and its new problems.
func (m *Machines) report(ctx context.Context) {
	logger, now := log.FromContext(ctx), m.listed.Load()
	logger.Info("inventory read", "parts", now.parts, "brokenParts", len(now.broken), "machines", len(now.machines), "refusedEntries", len(now.refused))
	before, more := m.reported, 0
	m.reported = map[string]bool{}
	for _, problem := range now.Problems() {
		m.reported[problem.Error()] = true
		switch {
		case before[problem.Error()]:
		case more < maxReports:
			more++
			logger.Error(problem, "the inventory has an error; a part that cannot be read keeps the machines that it last had")
		default:
			more++
		}
	}
	if more > maxReports {
		logger.Info("the inventory has more errors than are logged", "errors", more, "logged", maxReports)
	}
}

// Machine is [Listed.Machine] for the inventory as it was last read.
func (m *Machines) Machine(ctx context.Context, q csr.Question) (*csr.Machine, error) {
	return m.listed.Load().Machine(ctx, q)
}

// Problems is [Listed.Problems] for the inventory as it was last read.
func (m *Machines) Problems() []error { return m.listed.Load().Problems() }

// WithoutEvidence returns the names of the nodes that cannot attest, sorted.
func (m *Machines) WithoutEvidence() []string {
	machines, insecure := m.listed.Load().machines, csr.ProviderOf(csr.SignerClientInsecure)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(machines)), func(name string) bool { return machines[name].Provider != insecure })
}

// Register registers the metrics of the inventory. Their labels name neither machines nor parts.
func (m *Machines) Register(r prometheus.Registerer) error {
	gauge := func(name, help string, labels prometheus.Labels, value func(l *Listed) int) error {
		return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value(m.listed.Load())) }))
	}
	const parts, help = "nodeattest_inventory_parts", "How many files the inventory has, by whether they can be read as they are now: the log names those that cannot."
	return errors.Join(
		gauge("nodeattest_inventory_machines", "How many machines the inventory has, without refused entries.", nil, func(l *Listed) int { return len(l.machines) }),
		gauge("nodeattest_inventory_refused_entries", "How many entries of the inventory are not used because another part has an entry with the same value.", nil,
			func(l *Listed) int { return len(l.refused) }),
		gauge(parts, help, prometheus.Labels{"state": "read"}, func(l *Listed) int { return l.parts - len(l.broken) }),
		gauge(parts, help, prometheus.Labels{"state": "broken"}, func(l *Listed) int { return len(l.broken) }))
}
