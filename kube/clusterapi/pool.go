package clusterapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// poolKind is the kind of Cluster API's pools.
const poolKind = "MachinePool"

// isPool reports whether an object is a MachinePool.
func isPool(o *unstructured.Unstructured) bool { return o.GetKind() == poolKind }

// controllingPool returns the UID of the MachinePool that controls an object, or "".
func controllingPool(o client.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == poolKind && strings.HasPrefix(ref.APIVersion, coreGroup+"/") {
		return ref.UID
	}
	return ""
}

// pool reads the MachinePool with a UID from the API server: from a list, which takes no right of its own.
func (i *Inventory) pool(ctx context.Context, uid types.UID) (*unstructured.Unstructured, error) {
	if i.slots == nil || i.kinds.pool.Empty() {
		return nil, none("machines of MachinePools are not admitted: this program counts no slots, or the management cluster serves no MachinePools")
	}
	var found *unstructured.Unstructured
	err := i.each(ctx, i.kinds.pool, func(o *unstructured.Unstructured) {
		if uid != "" && o.GetUID() == uid {
			found = o.DeepCopy()
		}
	})
	if err == nil && found == nil {
		err = none("no MachinePool has the UID %s", refusal.Quote(string(uid)))
	}
	return found, err
}

// poolOfConfig returns the MachinePool that controls a KubeadmConfig and refers to it, both as they are now.
func (i *Inventory) poolOfConfig(ctx context.Context, uid types.UID, config string) (*unstructured.Unstructured, error) {
	p, err := i.pool(ctx, uid)
	if err != nil {
		return nil, err
	}
	kind, name := text(p.Object, "spec", "template", "spec", "bootstrap", "configRef", "kind"), text(p.Object, "spec", "template", "spec", "bootstrap", "configRef", "name")
	if kind != i.kinds.config.Kind || name != config {
		return nil, none("MachinePool %s is not the owner of KubeadmConfig %s: it refers to %s %s", p.GetName(), config, refusal.Quote(kind), refusal.Quote(name))
	}
	return p, nil
}

// poolMachine is the machine of a request that belongs to a MachinePool: the provider's Machine, where the
// provider makes Machines, and otherwise a machine that is known by its slot, "" before it has one.
func (i *Inventory) poolMachine(ctx context.Context, p *unstructured.Unstructured, slot string, request *csr.Request) (*csr.Machine, error) {
	says, err := poolSays(p)
	if err != nil {
		return nil, err
	}
	pkcs10, err := request.Parsed().PKCS10()
	if err != nil {
		return nil, none("%v", err)
	}
	claimed := oid.CanonicalProviderID(pkcs10.ProviderID)
	if slot == "" {
		if m, err := i.ofPool(ctx, p, claimed); err != nil || m != nil {
			if m != nil {
				m.BootstrapReady = says.BootstrapReady // its Machines have no boot data of their own
			}
			return m, err
		}
	}
	says.UID = slot
	if ids := providerIDs(p); claimed != "" && len(ids) > 0 {
		if !slices.Contains(ids, claimed) {
			return nil, notListed(p, claimed)
		}
		says.ProviderID = pkcs10.ProviderID
	}
	return says, nil
}

// poolSays reads the fields of a MachinePool that are about each of its machines.
func poolSays(p *unstructured.Unstructured) (*csr.Machine, error) {
	notes := p.GetAnnotations()
	for _, annotation := range []string{AnnotationIdentity, AnnotationEvidence} {
		if value, stated := notes[annotation]; stated {
			return nil, misconfigured(p, annotation, value, "none on a MachinePool, whose machines are many and attest")
		}
	}
	if insecure := csr.ProviderOf(csr.SignerClientInsecure); notes[AnnotationKind] == insecure {
		return nil, misconfigured(p, AnnotationKind, insecure, "a kind of evidence")
	}
	return &csr.Machine{Name: p.GetNamespace() + "/" + p.GetName(), Provider: notes[AnnotationKind],
		BootstrapReady: text(p.Object, "spec", "template", "spec", "bootstrap", "dataSecretName") != ""}, nil
}

// providerIDs are the provider IDs that the infrastructure provider has listed for a MachinePool, in the
// spelling by which two are compared.
func providerIDs(p *unstructured.Unstructured) []string {
	ids, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "providerIDList")
	for n := range ids {
		ids[n] = oid.CanonicalProviderID(ids[n])
	}
	return ids
}

func notListed(p *unstructured.Unstructured, id string) error {
	return refusal.Retry(fmt.Errorf("MachinePool %s does not have provider ID %s in spec.providerIDList", p.GetName(), refusal.Quote(id)))
}

// ofPool finds the Machine of a MachinePool that has the claimed provider ID; nil without one if the
// provider makes no Machines for the pool.
func (i *Inventory) ofPool(ctx context.Context, p *unstructured.Unstructured, claimed string) (*csr.Machine, error) {
	l := list(i.kinds.machine)
	if err := i.cached.List(ctx, l, client.InNamespace(i.namespace), client.MatchingFields{indexPool: string(p.GetUID())}); err != nil || len(l.Items) == 0 {
		return nil, err
	}
	if claimed == "" {
		return nil, none("the request claims no provider ID, by which its Machine of MachinePool %s is found", p.GetName())
	}
	for n := range l.Items {
		if canonicalProviderID(l.Items[n].Object) != claimed {
			continue
		}
		m, err := i.get(ctx, i.kinds.machine, l.Items[n].GetName())
		switch {
		case err != nil:
			return nil, err
		case m.GetUID() != l.Items[n].GetUID() || controllingPool(m) != p.GetUID() || canonicalProviderID(m.Object) != claimed || !i.owns(m):
			return nil, none("Machine %s is not the one of MachinePool %s with provider ID %s", m.GetName(), p.GetName(), refusal.Quote(claimed))
		case m.GetDeletionTimestamp() != nil:
			return nil, none("Machine %s is being deleted", m.GetName())
		}
		return machine(m)
	}
	return nil, refusal.Retry(fmt.Errorf("no Machine of MachinePool %s has provider ID %s yet", p.GetName(), refusal.Quote(claimed)))
}

// poolOf returns the MachinePool of a result whose machine has a slot, or is to get one; otherwise nil. It is
// read again: the pool may have changed since the request was checked.
func (i *Inventory) poolOf(ctx context.Context, r *attest.Result) (p *unstructured.Unstructured, err error) {
	uid, held := slotOf(r.Checked().Machine().UID)
	switch {
	case held:
		p, err = i.pool(ctx, uid)
	case r.Checked().Machine().UID != "":
		return nil, nil
	default:
		p, err = i.ofToken(ctx, r.Checked().Requester().TokenID)
	}
	switch {
	case err != nil:
		return nil, err
	case p == nil || !isPool(p) || !i.owns(p) || !held && p.GetDeletionTimestamp() != nil || p.GetNamespace()+"/"+p.GetName() != r.Checked().Machine().Name:
		return nil, none("the MachinePool of the request has changed meanwhile")
	}
	return p, nil
}

// checkListed refuses a machine without a provider ID of spec.providerIDList, where that is filled. A node
// that has joined before it was filled, without a provider ID, renews without one.
func checkListed(p *unstructured.Unstructured, r *attest.Result) error {
	ids, id := providerIDs(p), oid.CanonicalProviderID(r.Granted.ProviderID)
	switch {
	case len(ids) == 0 || slices.Contains(ids, id):
		return nil
	case id != "":
		return notListed(p, id)
	case r.Stage == attest.StageHello || r.Checked().Machine().UID != "":
		return nil // at the hello: the evidence may state it
	}
	return attest.NotMember("a machine that neither claims nor proves a provider ID, where MachinePool " + p.GetName() + " has spec.providerIDList")
}

// tokensKept is how many token IDs of MachinePools are remembered.
const tokensKept = 4096

// poolTokens are the IDs of tokens that KubeadmConfigs of MachinePools have or had while this program ran. A
// replaced token stands in no KubeadmConfig, and authenticates machines with older boot data until its
// Secret is gone.
type poolTokens struct {
	mu   sync.Mutex
	by   map[string]poolToken
	next int
}

// poolToken is the MachinePool that a token was made for.
type poolToken struct {
	pool   types.UID
	config string // the KubeadmConfig's name
	nth    int
}

// remember notes a token of a MachinePool. Once there are more than are kept, it forgets the oldest.
func (p *poolTokens) remember(id, config string, pool types.UID) {
	if id == "" || pool == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[string]poolToken{}
	}
	p.next++
	p.by[id] = poolToken{pool, config, p.next}
	if len(p.by) <= tokensKept {
		return
	}
	oldest := id
	for other, of := range p.by {
		if of.nth < p.by[oldest].nth {
			oldest = other
		}
	}
	delete(p.by, oldest)
}

func (p *poolTokens) find(id string) (poolToken, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, known := p.by[id]
	return of, known
}

// saw remembers the token of a KubeadmConfig, if that is a MachinePool's.
func (p *poolTokens) saw(o any) {
	if config, ok := o.(*unstructured.Unstructured); ok {
		p.remember(tokenID(config.Object), config.GetName(), controllingPool(config))
	}
}

// watchTokens remembers the tokens of MachinePools that the cache gets to see.
func (i *Inventory) watchTokens(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, object(i.kinds.config))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: i.tokens.saw, UpdateFunc: func(_, now any) { i.tokens.saw(now) }}) //goroutine: objects that Cluster API wrote
	}
	return err
}
