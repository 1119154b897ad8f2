package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/members"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/kube/signer"
	"github.com/nodeattest/nodeattest/refusal"
)

// runInsecureSigner approves and signs the requests of nodes without evidence, and no others.
func runInsecureSigner(ctx context.Context, f flags, s *settings.Settings) error {
	if s.InsecureSigner == nil {
		return refusal.Config("insecureSigner", "", "a section in the configuration, for --insecure")
	}
	if err := s.CheckInsecureCA(); err != nil {
		return err
	}
	ids, err := s.ClusterIDs()
	if err != nil {
		return err
	}
	ca, err := signer.OpenCA(s.InsecureSigner.CertificateFile, s.InsecureSigner.KeyFile, csr.CAConfig{
		ClusterIDs: ids, SignerNames: []string{csr.SignerClientInsecure}, MaxLifetime: s.InsecureSigner.MaxLifetime.Duration,
	})
	if err != nil {
		return err
	}
	m, nodes, err := newManager(insecure.Signer, f, s, s.InsecureSigner.MetricsAddress, s.InsecureSigner.HealthAddress)
	if err != nil {
		return err
	}
	records, err := registry.New(insecure.Scope(ids[0]), nodes.GetAPIReader(), nodes.GetClient(), registry.Options{})
	if err != nil {
		return err
	}
	machines, err := addInventory(ctx, m, s, records, clusterapi.Config{})
	if err != nil {
		return err
	}
	ends, err := newEnds(machines.withoutEvidence, records, metrics.Registry)
	if err != nil {
		return err
	}
	providers, err := insecure.New(insecure.Config{Policy: s.Policy(ids, machines.find, csr.SignerClientInsecure), Registry: records,
		NodeExists: members.NodeExists(nodes.GetAPIReader()), Used: ends.used})
	if err != nil {
		return err
	}
	checks, err := addInsecure(m, nodes, f, providers, ca)
	if err != nil {
		return err
	}
	checks["ca"], checks["inventory"] = ca.Check, machines.check
	if err := registerCA(ca); err != nil {
		return err
	}
	return start(ctx, m, []manager.Runnable{ca, ends}, checks)
}

// addInsecure creates the reconciler that approves requests and the one that signs them. Both verify
// them.
func addInsecure(m manager.Manager, nodes cluster.Cluster, f flags, providers *insecure.Providers, ca *signer.FileCA) (map[string]healthz.Checker, error) {
	approves, err := controller.New(controller.Config{Cluster: nodes, Events: nodes.GetEventRecorder(insecure.Approver), Providers: providers, Name: insecure.Approver, EveryReplica: !f.leaderElection, Metrics: metrics.Registry})
	if err != nil {
		return nil, err
	}
	signs, err := signer.New(signer.Config{Cluster: nodes, Events: nodes.GetEventRecorder(insecure.Signer), Providers: providers, CA: ca.CA, Name: insecure.Signer, EveryReplica: !f.leaderElection, Metrics: metrics.Registry})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(approves.SetupWithManager(m), signs.SetupWithManager(m)); err != nil {
		return nil, err
	}
	return map[string]healthz.Checker{"requests": approves.Check, "approved-requests": signs.Check}, nil
}

// ends says which nodes there are without evidence, and when the certificate of each ends, since
// none is renewed. It is a manager.Runnable.
type ends struct {
	names   func() []string
	records membership.Lookups
	now     func() time.Time
	warned  time.Time
	count   prometheus.Gauge
	end     *prometheus.GaugeVec
}

// endsInterval is how often it looks.
const endsInterval = 5 * time.Minute

func newEnds(names func() []string, records membership.Lookups, r prometheus.Registerer) (*ends, error) {
	e := &ends{names: names, records: records, now: time.Now,
		count: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nodeattest_insecure_nodes",
			Help: "How many machines of the inventory cannot attest: the first holder of a bootstrap token becomes such a node.",
		}),
		end: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodeattest_insecure_not_after_seconds",
			Help: "When the certificate of a node without evidence ends, which is not renewed, in seconds since 1970, by node; 0 if it has none.",
		}, []string{"node"}),
	}
	return e, errors.Join(r.Register(e.count), r.Register(e.end))
}

// NeedLeaderElection says that every replica looks: each has its own metrics.
func (*ends) NeedLeaderElection() bool { return false }

// Start looks until ctx ends.
func (e *ends) Start(ctx context.Context) error { //goroutine: the registry and metrics alone
	wait.UntilWithContext(ctx, e.look, endsInterval) //goroutine: in this one; the registry and metrics alone
	return nil
}

// used sets the metric of a node that has just got its certificate.
func (e *ends) used(nodeName string, end time.Time) {
	e.end.WithLabelValues(nodeName).Set(float64(end.Unix()))
}

// look sets the metrics. Once a day it logs them too.
func (e *ends) look(ctx context.Context) {
	logger, now, names := log.FromContext(ctx), e.now(), e.names()
	warn := now.Sub(e.warned) >= 24*time.Hour
	if warn {
		e.warned = now
		logger.Info("INSECURE: any holder of a bootstrap token can become a node without evidence, once for each such name", "nodes", len(names))
	}
	e.count.Set(float64(len(names)))
	e.end.Reset()
	for _, name := range names {
		record, err := e.records.Lookup(ctx, name)
		if err != nil && !errors.Is(err, membership.CheckRegistryScope) { // of one that has attested, in the past
			if ctx.Err() == nil {
				logger.Error(err, "failed to read when the certificate of a node without evidence ends", "node", name)
			}
			continue
		}
		end := 0.0
		if record != nil && !record.LastEnd.IsZero() {
			end = float64(record.LastEnd.Unix())
			if warn {
				logger.Info("INSECURE: a node without evidence", "node", name, "end", record.LastEnd.UTC(),
					"then", fmt.Sprintf("kubectl nodeattest release %s, and a fresh bootstrap token", name))
			}
		}
		e.end.WithLabelValues(name).Set(end)
	}
}
