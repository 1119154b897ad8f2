// Clusterapi is the start of an infrastructure provider of Cluster API whose machines attest: a manager on
// the management cluster that provisions FakeMachines, which are swtpm processes with a socket, and decides
// the requests of one Cluster's nodes in the same process. Its account needs, in the Cluster's namespace, get,
// list, watch and patch on fakemachines and fakeclusters and patch on their status, get, list, watch and patch
// on machines, get, list and watch on clusters and kubeadmconfigs, create on events (events.k8s.io), and get
// and update on the Secret CLUSTER-challenge-keys, which is created empty. Its account on the workload cluster
// has the rights of kube/deploy/rbac.yaml.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/keyring"
	"github.com/nodeattest/nodeattest/kube/registry"
)

func main() {
	workload := flag.String("workload-kubeconfig", "workload.kubeconfig", "the workload cluster")
	roots := flag.String("ek-roots", "ek-roots.pem", "the roots of EK certificates that are trusted")
	namespace, name := flag.String("namespace", "default", "the Cluster's namespace"), flag.String("cluster", "work", "the Cluster")
	flag.Parse()

	ctx, scheme := ctrl.SetupSignalHandler(), runtime.NewScheme()
	must(0, errors.Join(clientscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	home := must(ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}}}))
	config := must(clientcmd.BuildConfigFromFlags("", *workload))
	nodes := must(cluster.New(config, func(o *cluster.Options) { o.Scheme = scheme }))
	must(0, home.Add(nodes))
	p := &provider{home.GetClient()}
	must(0, ctrl.NewControllerManagedBy(home).For(object(infrastructure, "FakeCluster")).Complete(reconcile.Func(p.cluster)))
	must(0, ctrl.NewControllerManagedBy(home).For(object(infrastructure, "FakeMachine")).Complete(reconcile.Func(p.machine)))

	ca := must(tpmcert.ParseCertificatesPEM(config.CAData))
	kind := must(tpm.TrustEKs(must(tpmcert.ParseCertificatesPEM(must(os.ReadFile(*roots))))))
	must(0, attestNodes(ctx, home, nodes, client.ObjectKey{Namespace: *namespace, Name: *name}, must(attest.ClusterID(ca[0])), kind))
	must(0, home.Start(ctx))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// attestNodes decides the requests of a Cluster's nodes, each by its Machine. Kubernetes' own signers sign.
func attestNodes(ctx context.Context, home ctrl.Manager, nodes cluster.Cluster, of client.ObjectKey, id string, kind attest.Kind) error {
	scope := membership.Scope{Cluster: id, Road: attest.RoadEK, IdentityClass: "RSA-2048"}
	records, err := registry.New(scope, nodes.GetAPIReader(), nodes.GetClient(), registry.Options{})
	if err != nil {
		return err
	}
	machines, err := clusterapi.New(ctx, clusterapi.Config{Management: home.GetConfig(), Namespace: of.Namespace, Cluster: of.Name,
		Records: records, Signers: []string{csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeletServing}})
	if err != nil {
		return err
	}
	exists := func(ctx context.Context, name string) (bool, error) {
		err := nodes.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, new(corev1.Node))
		return err == nil, client.IgnoreNotFound(err)
	}
	first, err := membership.NewFirstUse(membership.FirstUseConfig{Registry: records, NodeExists: exists, MaxLifetime: csr.DefaultMaxLifetime})
	if err != nil {
		return err
	}
	ring, keys := new(attest.KeyRing), client.ObjectKey{Namespace: of.Namespace, Name: of.Name + "-challenge-keys"}
	keeper, err := keyring.New(keyring.Config{Reader: home.GetAPIReader(), Writer: home.GetClient(), Ring: ring, Secret: keys})
	if err != nil {
		return err
	}
	policy := csr.Policy{ClusterIDs: []string{id}, SignerNames: []string{csr.SignerKubeAPIServerClientKubelet},
		Machines: machines.Machine, BuiltInSignerDuration: 12 * time.Hour}
	serving := policy
	serving.SignerNames = []string{csr.SignerKubeletServing}
	verifier, err := attest.NewVerifier(attest.VerifierConfig{
		KeyRing: ring, Authorizer: machines.Authorizer(first), Kinds: []attest.Kind{kind}, Policy: &policy})
	if err != nil {
		return err
	}
	decides, err := controller.New(controller.Config{Cluster: nodes, Providers: controller.Of(verifier), Serving: &serving, Registry: records,
		Events: nodes.GetEventRecorder(controller.DefaultName)})
	if err != nil {
		return err
	}
	return errors.Join(home.Add(keeper), machines.SetupWithManager(home), decides.SetupWithManager(home))
}
