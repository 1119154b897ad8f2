package clusterapi

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// discovery is the path of a KubeadmConfig's discovery.
var discovery = []string{"spec", "joinConfiguration", "discovery"}

// tokenFields are the fields with a whole bootstrap token below discovery, in the order in which kubeadm
// join uses them for the kubelet's first request.
var tokenFields = [][]string{{"tlsBootstrapToken"}, {"bootstrapToken", "token"}}

// tokenID returns the ID of the token with which the machine of a KubeadmConfig joins, or "".
func tokenID(config map[string]any) string {
	id, _, _ := strings.Cut(tokenText(config), ".")
	return id
}

// tokenText returns the token with which the machine of a KubeadmConfig joins, its secret half too, or "".
func tokenText(config map[string]any) string {
	from, _, _ := unstructured.NestedMap(config, discovery...)
	for _, path := range tokenFields {
		if token := text(from, path...); token != "" {
			return token
		}
	}
	return ""
}

// joinsByFile reports whether the machine of a KubeadmConfig has the cluster from a file, and so no token
// of its own.
func joinsByFile(config map[string]any) bool {
	file, _, _ := unstructured.NestedMap(config, append(slices.Clip(discovery), "file")...)
	return file != nil && tokenID(config) == ""
}

// lean is the transform of the cache. Of a KubeadmConfig, whose files and commands may hold secrets, it
// keeps identity, owner and token ID; of the other objects all but the writers of their fields.
func lean(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	u.SetManagedFields(nil)
	if u.GetKind() != "KubeadmConfig" {
		return u, nil
	}
	kept := map[string]any{"apiVersion": u.Object["apiVersion"], "kind": u.Object["kind"], "metadata": u.Object["metadata"]}
	if id := tokenID(u.Object); id != "" {
		if err := unstructured.SetNestedField(kept, id, append(slices.Clip(discovery), tokenFields[0]...)...); err != nil {
			return nil, err
		}
	}
	lean := &unstructured.Unstructured{Object: kept}
	lean.SetAnnotations(nil) // kubectl's last-applied-configuration has the whole object
	return lean, nil
}

// byToken finds the Machine, or the MachinePool, for which the bootstrap provider made a token.
func (i *Inventory) byToken(ctx context.Context, id string, request *csr.Request) (*unstructured.Unstructured, error) {
	found, err := i.ofToken(ctx, id)
	if err == nil && found == nil {
		return i.byProviderID(ctx, id, request)
	}
	return found, err
}

// ofToken is byToken for a token that stands in a KubeadmConfig, stood in that of a MachinePool while this
// program ran, or was renewed for a MachinePool; nil for another one.
func (i *Inventory) ofToken(ctx context.Context, id string) (*unstructured.Unstructured, error) {
	of, known := i.tokens.find(id)
	search := i.find
	if known {
		search = i.inCache // without a list from the API server: it may stand in none any more
	}
	configs, err := search(ctx, i.kinds.config, indexToken, id, tokenID)
	if err != nil {
		return nil, err
	}
	candidates := make([]func() (*unstructured.Unstructured, error), 0, len(configs)+1)
	for n := range configs {
		candidates = append(candidates, func() (*unstructured.Unstructured, error) { return i.ofConfig(ctx, configs[n].GetName(), id) })
	}
	switch {
	case known:
		candidates = append(candidates, func() (*unstructured.Unstructured, error) { return i.poolOfConfig(ctx, of.pool, of.config) })
	case len(configs) == 0:
		return i.replaced(ctx, id)
	}
	var found *unstructured.Unstructured
	var why error // of the last config without a Machine
	for _, candidate := range candidates {
		m, err := candidate()
		switch {
		case errors.Is(err, csr.ErrNoMachine):
			why = err
		case err != nil:
			return nil, err
		case !i.owns(m):
			why = none("bootstrap token %s is of %s %s of another cluster", id, m.GetKind(), m.GetName())
		case found != nil && found.GetUID() != m.GetUID():
			return nil, none("bootstrap token %s is of two Machines: %s %s and %s %s", id, found.GetKind(), found.GetName(), m.GetKind(), m.GetName())
		default:
			found = m
		}
	}
	if found == nil {
		return nil, why
	}
	return found, nil
}

// ofConfig returns the Machine of a KubeadmConfig that has the token now.
func (i *Inventory) ofConfig(ctx context.Context, name, id string) (*unstructured.Unstructured, error) {
	config, err := i.get(ctx, i.kinds.config, name)
	if err != nil {
		return nil, err
	}
	if tokenID(config.Object) != id || config.GetDeletionTimestamp() != nil {
		return nil, none("KubeadmConfig %s has another token than %s now, or is being deleted", name, id)
	}
	return i.owner(ctx, config)
}

// byProviderID finds the Machine of a request whose token is in no KubeadmConfig, as with discovery.file:
// the one whose provider ID the request claims. Only the machine whose identity the Machine has is then
// admitted.
func (i *Inventory) byProviderID(ctx context.Context, id string, request *csr.Request) (*unstructured.Unstructured, error) {
	pkcs10, err := request.Parsed().PKCS10()
	if err != nil {
		return nil, none("%v", err)
	}
	claimed := oid.CanonicalProviderID(pkcs10.ProviderID)
	if claimed == "" {
		return nil, none("bootstrap token %s is of no Machine, and the request claims no provider ID; of the tokens that a MachinePool had before this program started, the ones with the label %s are known", id, LabelPoolUID)
	}
	machines, err := i.find(ctx, i.kinds.machine, indexProviderID, claimed, canonicalProviderID)
	if err != nil {
		return nil, err
	}
	if len(machines) != 1 {
		return nil, none("bootstrap token %s is of no Machine, and %d Machines have provider ID %s", id, len(machines), refusal.Quote(claimed))
	}
	m, err := i.get(ctx, i.kinds.machine, machines[0].GetName())
	if err != nil {
		return nil, err
	}
	if m.GetAnnotations()[AnnotationIdentity] == "" {
		return nil, none("bootstrap token %s is of no Machine, and Machine %s has no annotation %s", id, m.GetName(), AnnotationIdentity)
	}
	config, err := i.get(ctx, i.kinds.config, text(m.Object, "spec", "bootstrap", "configRef", "name"))
	if err != nil {
		return nil, err
	}
	if !joinsByFile(config.Object) || canonicalProviderID(m.Object) != claimed {
		return nil, none("bootstrap token %s is not that of KubeadmConfig %s", id, config.GetName())
	}
	return i.owner(ctx, config)
}
