package clusterapi

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// Follow has the records of nodes follow the Machines that they were made for. Each minute a sweep by the
// leader reads all Machines of the namespace. It notes on each AttestedNode which Machine it is of
// ([AnnotationMachine]) and releases the records whose Machine is gone, so that their names rest and are
// free afterwards.
//
// A record is adopted, by registry.Registry.Adopt, where its Machine is gone and another one of the Cluster
// has its name and the same machine: after clusterctl move, or when a machine of a fixed name is provisioned
// again. A resting record is bound again in the same way. The sweep adopts a record if the Machine has
// [AnnotationIdentity]; otherwise [Inventory.Authorizer] does, once the machine has attested. Another machine
// under the name is refused until an operator rebinds the node.
//
// A record is released if the sweep has noted its Machine, this Machine was missing in two consecutive
// complete lists, was not seen with clusterctl's annotation delete-for-move, and no other Machine of the
// Cluster has its name. Nothing is done while the Machines or the Cluster cannot be read, and while the
// Cluster is missing, paused or being deleted. If more records are due in one run than a tenth of those
// whose Machine was noted, and more than one, none is released: they get the annotation
// [AnnotationGone], for an operator.
//
// The records of a MachinePool's machines ([Slots]) are released in the same way, once the provider ID of the
// machine has left spec.providerIDList. An empty list releases none. After clusterctl move they are adopted for
// the pool that has the name in the Cluster with another UID ([AnnotationClusterUID]), while it has free slots.
//
// It needs list and watch on attestednodes and update on them, in addition to the rights of
// registry.Registry.
type Follow struct {
	// Records are the registries of the workload cluster, one for each kind of evidence. They read past
	// caches.
	Records registry.Several
	// Nodes is a client of the workload cluster. It may read AttestedNodes from a cache.
	Nodes client.Client
	// Metrics gets the metrics of the sweep.
	Metrics prometheus.Registerer
}

// origin is the Machine, or the MachinePool, that a record is of.
type origin struct{ namespace, cluster, name string }

func (o origin) String() string { return o.namespace + "/" + o.cluster + "/" + o.name }

// origin returns the origin of a Machine or a MachinePool of the Cluster.
func (i *Inventory) origin(m *unstructured.Unstructured) origin {
	return origin{i.namespace, i.cluster, m.GetName()}
}

// originOf returns the noted origin of a record; false without one, and if it is of another Machine UID
// than the record has now.
func originOf(object *v1alpha1.AttestedNode, record *membership.Record) (origin, bool) {
	notes := object.GetAnnotations()
	parts := strings.Split(notes[AnnotationMachine], "/")
	if len(parts) != 3 || record.MachineUID == "" || notes[AnnotationMachineUID] != record.MachineUID {
		return origin{}, false
	}
	return origin{parts[0], parts[1], parts[2]}, true
}
