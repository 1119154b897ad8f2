package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config is the configuration of an [Inventory]. The fields of the first group have no default.
type Config struct {
	// Management is the connection to the management cluster: its account needs get, list and
	// watch on machines and clusters (cluster.x-k8s.io) and on kubeadmconfigs
	// (bootstrap.cluster.x-k8s.io), in Namespace alone.
	Management *rest.Config
	// Namespace and Cluster name the Cluster object.
	Namespace, Cluster string
	// Records are the records of the workload cluster's nodes, of every kind of evidence, such as
	// registry.Several.
	Records membership.Lookups

	// Signers are the signers of certificates for which requests are decided, as in csr.Policy. The
	// names in the status of the infrastructure cluster are compared with them each minute, which
	// needs get on the provider's resource, such as fakeclusters, and create on events
	// (events.k8s.io), both in Namespace. A difference is an Event on the Cluster, once for each
	// change; without the right to get it there is a line in the log, once. No request is refused
	// for it. Nil compares nothing.
	Signers []string
	// Slots, if it is not nil, admits machines of MachinePools, and takes list on machinepools
	// (cluster.x-k8s.io) in Namespace. Nil refuses them. It is of one Inventory alone.
	Slots *Slots
	// Follow, if it is not nil, has the records follow the Machines: the leader's sweep releases those
	// whose Machine is gone.
	Follow *Follow
	// Pools, if it is not nil, reads which MachinePools are shut, and renews their tokens. Slots need it.
	Pools *Pools
}

// Inventory finds the Machine of a request. [New] makes one.
type Inventory struct {
	namespace, cluster string
	records            membership.Lookups
	management         cluster.Cluster
	cached, live       client.Reader
	mapper             meta.RESTMapper
	signers            []string
	kinds              kinds
	follow             *Follow // nil: records do not follow Machines
	slots              *Slots  // nil: machines of MachinePools are not admitted
	pools              *Pools  // nil: it is not known which pools are shut
	tokens             poolTokens
	lists              *rate.Limiter // of live lists
}

// kinds are the versions of Cluster API's objects that the management cluster prefers.
type kinds struct {
	machine, config, cluster schema.GroupVersionKind
	pool                     schema.GroupVersionKind // empty: not served
}

// The groups of Cluster API.
const (
	coreGroup      = "cluster.x-k8s.io"
	bootstrapGroup = "bootstrap.cluster.x-k8s.io"
)

const (
	// indexToken is the cache's index of KubeadmConfigs by the ID of their token.
	indexToken = "nodeattest.tokenID"
	// indexUID is the cache's index of Machines by UID.
	indexUID = "nodeattest.uid"
	// indexProviderID is the cache's index of Machines by canonical provider ID.
	indexProviderID = "nodeattest.providerID"
	// indexPool is the cache's index of Machines by the UID of the MachinePool that controls them.
	indexPool = "nodeattest.pool"
)

// A live list is made where the cache does not have an object, which any requester can bring about.
const (
	listInterval = time.Second
	listBurst    = 5
	listPage     = 200 // objects at a time: a KubeadmConfig may have 1 MiB
)

// New checks the configuration, and finds out which versions of Cluster API's objects the management
// cluster serves. The error is refusal.CheckConfig, or that of a request to the management
// cluster.
func New(ctx context.Context, config Config) (*Inventory, error) {
	switch {
	case config.Management == nil:
		return nil, refusal.Config("Management", "", "a connection to the management cluster")
	case config.Records == nil:
		return nil, refusal.Config("Records", "", "the records of the workload cluster's nodes")
	case len(validation.IsDNS1123Label(config.Namespace)) != 0:
		return nil, refusal.Config("Namespace", refusal.Quote(config.Namespace), "the namespace of the Cluster")
	case len(validation.IsDNS1123Subdomain(config.Cluster)) != 0:
		return nil, refusal.Config("Cluster", refusal.Quote(config.Cluster), "the name of the Cluster")
	case config.Slots != nil && (config.Slots.Nodes == nil || config.Slots.inventory != nil):
		return nil, refusal.Config("Slots", "without Nodes, or of another Inventory", "new ones with Nodes, or nil")
	case config.Slots != nil && config.Pools == nil:
		return nil, refusal.Config("Slots", "without Pools", "both: a pool that is shut gives no slot")
	case config.Follow != nil && (len(config.Follow.Records) == 0 || config.Follow.Nodes == nil || config.Follow.Metrics == nil):
		return nil, refusal.Config("Follow", "without Records, Nodes or Metrics", "all of them, or nil")
	}
	if err := config.Pools.check(); err != nil {
		return nil, err
	}
	c, err := cluster.New(config.Management, func(o *cluster.Options) {
		o.Scheme = runtime.NewScheme()
		o.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{config.Namespace: {}}, DefaultTransform: lean}
	})
	if err != nil {
		return nil, fmt.Errorf("clusterapi: management cluster: %w", err)
	}
	i := &Inventory{namespace: config.Namespace, cluster: config.Cluster, records: config.Records, management: c,
		cached: c.GetCache(), live: c.GetAPIReader(), mapper: c.GetRESTMapper(), signers: slices.Clone(config.Signers),
		follow: config.Follow, pools: config.Pools, lists: rate.NewLimiter(rate.Every(listInterval), listBurst)}
	if i.kinds, err = served(i.mapper); err != nil {
		return nil, err
	}
	if err := i.index(ctx, c.GetFieldIndexer()); err != nil || config.Slots == nil {
		return i, err
	}
	i.slots, config.Slots.inventory = config.Slots, i
	return i, i.watchTokens(ctx, c.GetCache())
}

// served returns the versions of Cluster API's objects that a cluster prefers.
func served(mapper meta.RESTMapper) (k kinds, err error) {
	for _, of := range []struct {
		into        *schema.GroupVersionKind
		group, kind string
	}{{&k.machine, coreGroup, "Machine"}, {&k.cluster, coreGroup, "Cluster"}, {&k.config, bootstrapGroup, "KubeadmConfig"}} {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: of.group, Kind: of.kind})
		if err != nil {
			return kinds{}, fmt.Errorf("clusterapi: the management cluster does not serve %s of %s: %w", of.kind, of.group, err)
		}
		*of.into = mapping.GroupVersionKind
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: coreGroup, Kind: poolKind})
	switch {
	case err == nil:
		k.pool = mapping.GroupVersionKind
	case !meta.IsNoMatchError(err):
		return kinds{}, err
	}
	return k, nil
}

// index adds the indexes to a cache. Each object of them is then watched.
func (i *Inventory) index(ctx context.Context, indexer client.FieldIndexer) error {
	return errors.Join(
		indexer.IndexField(ctx, object(i.kinds.config), indexToken, func(o client.Object) []string { return some(tokenID(content(o))) }),
		indexer.IndexField(ctx, object(i.kinds.machine), indexUID, func(o client.Object) []string { return some(string(o.GetUID())) }),
		indexer.IndexField(ctx, object(i.kinds.machine), indexPool, func(o client.Object) []string { return some(string(controllingPool(o))) }),
		indexer.IndexField(ctx, object(i.kinds.machine), indexProviderID, func(o client.Object) []string { return some(canonicalProviderID(content(o))) }),
	)
}

// SetupWithManager adds the connection to the management cluster to a manager, which then keeps the
// cache of its objects. The leader compares the signer names, sweeps, counts slots, and renews the tokens of
// pools.
func (i *Inventory) SetupWithManager(m manager.Manager) error {
	if i == nil || i.management == nil {
		return errNotMade
	}
	if err := m.Add(i.management); err != nil {
		return err
	}
	if i.follow != nil {
		s, err := newSweep(i)
		if err == nil {
			err = m.Add(s)
		}
		if err != nil {
			return err
		}
	}
	if i.slots != nil && i.slots.Metrics != nil {
		c, err := newSlotCounts(i)
		if err == nil {
			err = m.Add(c)
		}
		if err != nil {
			return err
		}
	}
	if i.pools != nil && i.pools.Renew {
		t, err := newTokenRenewal(i)
		if err == nil {
			err = m.Add(t)
		}
		if err != nil {
			return err
		}
	}
	if len(i.signers) == 0 {
		return nil
	}
	return m.Add(&signerComparison{Inventory: i, events: i.management.GetEventRecorder(reporter)})
}

var errNotMade = errors.New("clusterapi: an Inventory that New did not make")

// Check fails until the cache of the management cluster's objects is filled: for a manager's readiness.
func (i *Inventory) Check(r *http.Request) error {
	if i == nil || i.management == nil || r == nil {
		return errNotMade
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if !i.management.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the cache of the management cluster's Machines has not been filled")
	}
	return nil
}

// Machine is a csr.Policy.Machines. It finds the Machine, or the MachinePool ([Slots]), by the requester's
// bootstrap token or, for a node that has joined, by its record. Its errors say for the operator why there is no Machine:
// csr.ErrNoMachine. A Cluster whose [AnnotationAuthentication] is "false" has csr.ErrOtherSigner:
// its requests are left alone. While the Cluster is paused, a node that has joined and has no Machine waits.
func (i *Inventory) Machine(ctx context.Context, q csr.Question) (*csr.Machine, error) {
	if i == nil || i.cached == nil || q.Request == nil {
		return nil, errNotMade
	}
	allowed, err := i.attestors(ctx)
	if err != nil {
		return nil, err
	}
	requester, err := q.Request.User.Requester()
	if err != nil {
		return nil, none("%v", err)
	}
	var found *unstructured.Unstructured
	var slot string
	joins := requester.Class == csr.RequesterBootstrap
	if joins {
		found, err = i.byToken(ctx, requester.TokenID, q.Request)
	} else {
		found, slot, err = i.byRecord(ctx, q.NodeName)
		if errors.Is(err, csr.ErrNoMachine) {
			err = i.unlessPaused(ctx, err)
		}
	}
	if err != nil {
		return nil, err
	}
	switch {
	case !i.owns(found):
		return nil, none("%s %s is of another cluster than %s", found.GetKind(), found.GetName(), i.cluster)
	case joins && found.GetDeletionTimestamp() != nil:
		return nil, none("%s %s is being deleted", found.GetKind(), found.GetName())
	case !joins && slot == "" && q.Request.Spec.SignerName == csr.SignerKubeletServing:
		if err := i.awaitsAdoption(ctx, q.NodeName, found); err != nil {
			return nil, err
		}
	}
	var m *csr.Machine
	if isPool(found) {
		m, err = i.poolMachine(ctx, found, slot, q.Request)
	} else {
		m, err = machine(found)
	}
	if err != nil {
		return nil, err
	}
	if m.Provider != "" && !allowed.has(m.Provider) {
		return nil, none("%s %s has evidence of kind %s, and Cluster %s authorizes %s", found.GetKind(), found.GetName(), refusal.Quote(m.Provider), i.cluster, allowed)
	}
	return m, nil
}

// none says why there is no Machine, for the operator.
func none(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{csr.ErrNoMachine}, args...)...)
}

// object makes an empty object of a kind.
func object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(kind)
	return o
}

// list makes an empty list of a kind.
func list(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := new(unstructured.UnstructuredList)
	l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return l
}

// some returns the value for an index, or no value for "".
func some(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// inCache returns the cached objects with a value in an index.
func (i *Inventory) inCache(ctx context.Context, kind schema.GroupVersionKind, index, value string, _ func(map[string]any) string) ([]unstructured.Unstructured, error) {
	l := list(kind)
	err := i.cached.List(ctx, l, client.InNamespace(i.namespace), client.MatchingFields{index: value})
	return l.Items, err
}

// find returns the objects with a value in an index. While the cache has none it asks the API server, as
// often as the limit allows.
func (i *Inventory) find(ctx context.Context, kind schema.GroupVersionKind, index, value string, of func(map[string]any) string) ([]unstructured.Unstructured, error) {
	if found, err := i.inCache(ctx, kind, index, value, of); err != nil || len(found) > 0 {
		return found, err
	}
	if !i.lists.Allow() {
		return nil, refusal.Retry(fmt.Errorf("no %s for this request is in the cache, and the management cluster was asked less than %s ago", kind.Kind, listInterval))
	}
	var found []unstructured.Unstructured
	err := i.each(ctx, kind, func(o *unstructured.Unstructured) {
		if of(o.Object) == value {
			found = append(found, *o)
		}
	})
	return found, err
}

// each calls f with every object of a kind in the namespace, as the API server has them. Without an error
// it was every one.
func (i *Inventory) each(ctx context.Context, kind schema.GroupVersionKind, f func(*unstructured.Unstructured)) error {
	for l := list(kind); ; {
		if err := i.live.List(ctx, l, client.InNamespace(i.namespace), client.Limit(listPage), client.Continue(l.GetContinue())); err != nil {
			return err
		}
		for n := range l.Items {
			f(&l.Items[n])
		}
		if l.GetContinue() == "" {
			return nil
		}
	}
}

// get reads an object from the API server. One that is gone is csr.ErrNoMachine.
func (i *Inventory) get(ctx context.Context, kind schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	o := object(kind)
	err := i.live.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: name}, o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, none("%s %s is gone", kind.Kind, name)
	case err != nil:
		return nil, err
	}
	return o, nil
}
