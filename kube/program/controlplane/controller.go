package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/kube/internal/members"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/keyring"
	"github.com/nodeattest/nodeattest/kube/program/controlplane/bypass"
	"github.com/nodeattest/nodeattest/kube/program/internal/observed"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// runController starts everything that the configuration asks for.
func runController(ctx context.Context, f flags, s *settings.Settings) error {
	m, nodes, err := newManager(controller.DefaultName, f, s, s.Controller.MetricsAddress, s.Controller.HealthAddress)
	if err != nil {
		return err
	}
	if f.observe {
		if f.observe, err = mayObserve(ctx, nodes.GetAPIReader()); err != nil {
			return err
		}
	}
	ring := new(attest.KeyRing)
	keeper, err := keyring.New(keyring.Config{
		Reader: m.GetAPIReader(), Writer: m.GetClient(), Ring: ring, RotateAfter: s.Controller.RotateKeysAfter.Duration,
		Secret: client.ObjectKey{Namespace: s.Home(), Name: s.Cluster.KeyRingSecret}, Metrics: metrics.Registry,
	})
	if err != nil {
		return err
	}
	decider, machines, err := addDecider(ctx, m, nodes, f, s, ring)
	if err != nil {
		return err
	}
	watch, err := newWatch(nodes, f, s)
	if err != nil {
		return err
	}
	enforces := &enforcement{watch: watch.Check, reader: m.GetAPIReader(), writer: m.GetClient(), observes: f.observe, ignores: s.Controller.InsecureAllowWaysAround || f.observe,
		lease: client.ObjectKey{Namespace: s.Home(), Name: lease(controller.DefaultName, s)}}
	return start(ctx, m, []manager.Runnable{keeper, watch, enforces},
		map[string]healthz.Checker{"key-ring": keeper.Check, "ways-around": enforces.Check, "caches": synced(nodes), "requests": decider.Check, "inventory": machines.check})
}

// addDecider creates the reconciler that decides the requests of a cluster's nodes, and its inventory.
func addDecider(ctx context.Context, m manager.Manager, nodes cluster.Cluster, f flags, s *settings.Settings, ring *attest.KeyRing) (*controller.Reconciler, *machineSource, error) {
	stale, err := registry.Cached(ctx, nodes.GetCache())
	if err != nil {
		return nil, nil, fmt.Errorf("the registry's cache: %w", err)
	}
	names := new(metav1.PartialObjectMetadata) // of all Nodes, for NodeExists and comparer
	names.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if _, err := nodes.GetCache().GetInformer(ctx, names); err != nil {
		return nil, nil, fmt.Errorf("the cache of Nodes: %w", err)
	}
	var records, cached registry.Several
	slots := poolSlots(s, nodes.GetAPIReader())
	admits, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		live, err := registry.New(scope, nodes.GetAPIReader(), nodes.GetClient(), registry.Options{Stale: stale})
		if err != nil {
			return nil, nil, err
		}
		records, cached = append(records, live), append(cached, live.Stale())
		return live, live.Stale(), nil
	}, members.NodeExists(nodes.GetCache(), nodes.GetAPIReader()), slots.FirstUse)
	if err != nil {
		return nil, nil, err
	}
	booted, err := addWatchers(m, nodes, records[0])
	if err != nil {
		return nil, nil, err
	}
	machines, err := addInventory(ctx, m, s, records, clusterapi.Config{Signers: servedSigners(s), Slots: slots, Pools: readPools(s, nodes),
		Follow: &clusterapi.Follow{Records: records, Nodes: nodes.GetClient(), Metrics: metrics.Registry}})
	if err != nil {
		return nil, nil, err
	}
	verifier, err := s.Verifier(ring, machines.find, machines.wraps(admits))
	if err != nil {
		return nil, nil, err
	}
	if err := addTrust(m, s); err != nil {
		return nil, nil, err
	}
	c := controller.Config{
		Cluster: nodes, Events: nodes.GetEventRecorder(controller.DefaultName), Providers: judging{controller.Of(verifier), booted, len(s.TPM.GoodPCRs) != 0}, Registry: records, Stale: cached, EveryReplica: !f.leaderElection,
		RequesterRate: s.Controller.RequesterRate, RequesterBurst: s.Controller.RequesterBurst, Workers: s.Controller.Workers, Metrics: metrics.Registry,
		Changes: func(changed func(string)) error { return recordChanges(ctx, nodes.GetCache(), changed) },
	}
	if f.observe {
		table := observed.New(nodes.GetAPIReader(), nodes.GetClient(), s.Cluster.Namespace, time.Now)
		if err := m.Add(table); err != nil {
			return nil, nil, err
		}
		c.Observe = table.Observe
	}
	if s.Signers.BuiltInDuration.Duration != 0 {
		ids, err := s.ClusterIDs()
		if err != nil {
			return nil, nil, err
		}
		c.Serving = s.Policy(ids, machines.find, csr.SignerKubeletServing)
	}
	reconciler, err := controller.New(c)
	if err != nil {
		return nil, nil, err
	}
	return reconciler, machines, reconciler.SetupWithManager(m)
}

// addWatchers adds the parts of the controller that follow the records and decide no request: the metrics of renewals,
// the comparer of provider IDs, the sweeper of ended records, and the writer of boots, which it returns.
func addWatchers(m manager.Manager, nodes cluster.Cluster, records *registry.Registry) (*boots, error) {
	if err := metrics.Registry.Register(newRenewals(nodes.GetCache(), time.Now)); err != nil {
		return nil, err
	}
	compares, err := newComparer(nodes.GetCache(), nodes.GetAPIReader(), nodes.GetEventRecorder(controller.DefaultName), metrics.Registry)
	if err != nil {
		return nil, err
	}
	booted, err := newBoots(nodes.GetAPIReader(), nodes.GetClient(), metrics.Registry)
	if err != nil {
		return nil, err
	}
	for _, r := range []manager.Runnable{sweeper{records}, compares, booted} {
		if err := m.Add(r); err != nil {
			return nil, err
		}
	}
	return booted, nil
}

// recordChanges calls changed for each node whose record is added, changed or deleted from now on. Changes of a
// record's metadata and status count for no decision.
func recordChanges(ctx context.Context, nodes cache.Cache, changed func(nodeName string)) error {
	informer, err := nodes.GetInformer(ctx, new(v1alpha1.AttestedNode))
	if err != nil {
		return err
	}
	of := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if node, ok := o.(*v1alpha1.AttestedNode); ok {
			changed(node.Name)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{ //goroutine: records of the API server, whose names alone are kept
		AddFunc: func(o any, first bool) {
			if !first {
				of(o)
			}
		},
		UpdateFunc: func(before, o any) {
			a, ok := before.(*v1alpha1.AttestedNode)
			if b, same := o.(*v1alpha1.AttestedNode); !ok || !same || !equality.Semantic.DeepEqual(a.Spec, b.Spec) {
				of(o)
			}
		},
		DeleteFunc: of,
	})
	return err
}

// enforcing are the bindings that the component enforce has, and nothing else that is applied.
const enforcing = "enforce/*.yaml"

// mayObserve reports whether none of the bindings of the component enforce refuses requests. While one
// does, a controller enforces whatever its flags say: the Deployment has --observe again after
// kube/deploy was applied without the component.
func mayObserve(ctx context.Context, reader client.Reader) (bool, error) {
	manifests, err := deploy.Manifests(enforcing)
	if err != nil {
		return false, err
	}
	for _, manifest := range manifests {
		var shipped, binding admissionv1.ValidatingAdmissionPolicyBinding
		if err := yaml.Unmarshal(manifest, &shipped); err != nil {
			return false, err
		}
		err := reader.Get(ctx, client.ObjectKey{Name: shipped.Name}, &binding)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return false, fmt.Errorf("cannot find out whether attestation is enforced: ValidatingAdmissionPolicyBinding %s: %w", shipped.Name, err)
		case slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny):
			log.FromContext(ctx).Info("--observe has no effect: attestation is enforced while this ValidatingAdmissionPolicyBinding refuses requests; "+
				"to observe, delete the bindings of the component enforce, and restart", "binding", shipped.Name)
			return false, nil
		}
	}
	return true, nil
}

// newWatch creates the watch for ways around attestation. Even if Kubernetes' own signer is
// not used, its approvers matter: the API server trusts its CA. A controller that observes
// reports them, and is ready.
func newWatch(nodes cluster.Cluster, f flags, s *settings.Settings) (*bypass.Watch, error) {
	config := bypass.Config{
		Reader: nodes.GetAPIReader(), Writer: nodes.GetClient(), Namespace: s.Cluster.Namespace, Accepted: slices.Clone(s.Controller.AcceptedBindings),
		Serving: s.Signers.BuiltInDuration.Duration != 0,
	}
	if !f.observe {
		approval := "approval.yaml"
		if s.InsecureSigner != nil {
			approval = "insecure/approval.yaml"
		}
		for _, file := range []string{"admission.yaml", approval, enforcing} {
			manifests, err := deploy.Manifests(file)
			if err != nil {
				return nil, err
			}
			config.Policies = append(config.Policies, manifests...)
		}
	}
	finder, err := bypass.NewFinder(config)
	if err != nil {
		return nil, fmt.Errorf("ways around: %w", err)
	}
	return bypass.NewWatch(bypass.WatchConfig{
		Finder: finder, Events: nodes.GetEventRecorder(controller.DefaultName), Metrics: metrics.Registry, InsecureAllow: f.observe || s.Controller.InsecureAllowWaysAround,
	})
}
