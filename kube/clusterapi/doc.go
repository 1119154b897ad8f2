// Package clusterapi makes the Machines of Cluster API the inventory of a cluster: the Machine decides
// who may join, and as what. [Inventory] answers csr.Policy.Machines, and [Inventory.Authorizer] holds
// the machine that has attested against its Machine.
//
// The objects are read from the management cluster, as unstructured data: the fields that are needed
// have one path in cluster.x-k8s.io/v1beta1 and v1beta2, so neither Cluster API's module nor a version
// of it is needed.
//
// # Which Machine
//
// At a first join the requester's bootstrap token leads to the Machine: the kubeadm bootstrap provider
// makes one for each Machine and writes it into the KubeadmConfig that the Machine owns. A Machine
// is found once: its UID is recorded with the node, and the registry refuses it under a second name.
// A KubeadmConfig with discovery.file and no tlsBootstrapToken has no token of its own: its Machine
// must have the annotation [AnnotationIdentity], and is found by the provider ID that the request
// claims, which the evidence of that identity has to bear out.
//
// At a renewal the node's record leads to the Machine, by its UID. A Machine that is being deleted is
// drained meanwhile, so its node renews; a node whose Machine is gone does not. Nothing is decided by
// the name of a Node or a Machine.
//
// # MachinePools
//
// The token of a MachinePool is that of many machines. With [Slots] each of them gets a slot of the pool, at
// most spec.replicas in all, and its record leads to the pool. Where the infrastructure provider makes Machines
// for the pool, a machine is found among them by the provider ID that the request claims. Of the tokens that the
// bootstrap provider has replaced, the program knows the IDs that it has seen since it started.
//
// # Records
//
// The records of nodes follow the Machines and MachinePools ([Follow]): the record of a machine that is gone is
// released, and clusterctl move takes records along.
//
// # Providers
//
// An infrastructure provider states the signers whose certificates its nodes request in the status of
// its own infrastructure cluster, whose fields Cluster API's CRDs do not define:
//
//	status:
//	  kubeletClientCertificateSigner: kubernetes.io/kube-apiserver-client-kubelet
//	  kubeletServingCertificateSigner: kubernetes.io/kubelet-serving
//
// The [Inventory] compares them with Config.Signers, for people: a difference is an Event on the Cluster.
// Without a field nothing is compared. Before a provider sets spec.providerID of a machine whose identity
// it knows, it annotates the Machine with [AnnotationIdentity].
//
// Who may write Machines and KubeadmConfigs in the namespace decides who joins the cluster.
//
// Source: Cluster API's proposal "Kubelet Authentication" (20210222-kubelet-authentication), sections
// "Node Attestation", "Provider Specification" and "Changes to the Cluster and core Cluster API controller".
package clusterapi
