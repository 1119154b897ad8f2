package kube

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The groups of Cluster API and of the infrastructure provider of these tests.
const (
	coreGroup      = "cluster.x-k8s.io"
	bootstrapGroup = "bootstrap." + coreGroup
	infraGroup     = "infrastructure." + coreGroup
	controlGroup   = "controlplane." + coreGroup
	fleetCluster   = "work" // the Cluster
)

type fields = map[string]any

// fleet is a management cluster with Cluster API's managers, and the workload cluster of one Cluster.
type fleet struct {
	*cluster // of the nodes
	home     *cluster
	version  string // of Cluster API's objects
	tokenTTL string // of the bootstrap provider's tokens; "" means its own
}

// managers is the folder of Cluster API's managers, their resource definitions, and clusterctl.
func managers(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "scripts", "cluster-api-managers.sh"))
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("Cluster API's managers cannot be built: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// newFleet starts both clusters and Cluster API's managers, with a Cluster and its Machines. The flags are
// those of the workload cluster's API server.
func newFleet(t *testing.T, version string, replicas int, flagsOf ...func(c *cluster) []string) *fleet {
	t.Helper()
	f := &fleet{cluster: startJoinable(t, flagsOf...), home: startCluster(t), version: version}
	f.begin(t, replicas)
	return f
}

// begin starts the managers, and makes the Cluster and its Machines.
func (f *fleet) begin(t *testing.T, replicas int) {
	t.Helper()
	bin := managers(t)
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		eventually(t, func() error {
			return f.home.admin.Get(t.Context(), client.ObjectKey{Name: name}, new(corev1.Namespace))
		})
	}
	f.startManagers(t, bin)
	f.secrets(t)
	f.objects(t, replicas)
}

// startManagers applies the resource definitions and starts the managers, whose webhooks are at addresses
// of this host.
func (f *fleet) startManagers(t *testing.T, bin string) {
	t.Helper()
	ports := controlplane.FreePorts(t, 6)
	hooks := filepath.Join(f.home.dir, "webhook")
	if err := os.Mkdir(hooks, 0o700); err != nil {
		t.Fatal(err)
	}
	cert, key := f.home.ca.Issue(t, pkix.Name{CommonName: "webhooks"}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	controlplane.Write(t, hooks, "tls.crt", cert)
	controlplane.Write(t, hooks, "tls.key", key)
	admin := f.home.kubeconfig(t, "managers.kubeconfig", "admin", "system:masters")
	for _, crd := range []fields{fakeCRD("FakeCluster", infraGroup), fakeCRD("FakeMachine", infraGroup), fakeCRD("FakeMachineTemplate", infraGroup), fakeCRD("FakeMachinePool", infraGroup),
		fakeCRD("FakeControlPlane", controlGroup)} {
		f.home.make(t, crd)
	}
	var later []fields // webhooks, once the managers run
	for n, part := range []string{"core", "bootstrap/kubeadm"} {
		url := "https://127.0.0.1:" + ports[3*n]
		for _, o := range documents(t, filepath.Join(bin, "crds", part)) {
			if o["kind"] == "CustomResourceDefinition" {
				f.home.make(t, conversionAt(o, url, controlplane.CertificatePEM(f.home.ca.Cert)))
				continue
			}
			later = append(later, webhooksAt(o, strings.ReplaceAll(part, "/", "-"), url, controlplane.CertificatePEM(f.home.ca.Cert)))
		}
	}
	for _, of := range [][2]string{{coreGroup, "Machine"}, {bootstrapGroup, "KubeadmConfig"}, {infraGroup, "FakeMachine"}, {controlGroup, "FakeControlPlane"}} {
		eventually(t, func() error { // else a manager ends at its start
			_, err := f.list(t.Context(), of[0], "v1beta2", of[1])
			return err
		})
	}
	for n, program := range []string{"core", "kubeadm"} {
		health := "127.0.0.1:" + ports[3*n+1]
		args := []string{"--kubeconfig=" + admin, "--leader-elect=false", "--webhook-port=" + ports[3*n], "--webhook-cert-dir=" + hooks,
			"--health-addr=" + health, "--diagnostics-address=127.0.0.1:" + ports[3*n+2], "--insecure-diagnostics", "--sync-period=1m", "--feature-gates=KubeadmBootstrapFormatIgnition=true"}
		if program == "kubeadm" && f.tokenTTL != "" {
			args = append(args, "--bootstrap-token-ttl="+f.tokenTTL)
		}
		p := startAs(t, "cluster-api-"+program, filepath.Join(bin, program), f.home.dir, args...)
		p.ready(t, func() error { return controlplane.Healthy("http://" + health + "/healthz") })
	}
	for _, o := range later {
		f.home.make(t, o)
	}
}

// documents reads the YAML documents in the files of a folder.
func documents(t *testing.T, dir string) (all []fields) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(paths), err)
	}
	for _, path := range paths {
		for decoder := yamlstream.NewYAMLOrJSONDecoder(strings.NewReader(string(controlplane.Read(t, path))), 4096); ; {
			var o fields
			if err := decoder.Decode(&o); err != nil {
				break
			}
			if o != nil {
				all = append(all, o)
			}
		}
	}
	return all
}

// clusterctlLabel is the label of resource definitions whose objects clusterctl moves.
const clusterctlLabel = "clusterctl." + coreGroup

// conversionAt has a resource definition be converted at an address, and gives it the contract's labels and
// clusterctl's.
func conversionAt(crd fields, url string, ca []byte) fields {
	labels, spec := fields{clusterctlLabel: ""}, crd["spec"].(fields)
	versions := spec["versions"].([]any)
	for _, v := range versions {
		if name := v.(fields)["name"].(string); name == "v1beta1" || name == "v1beta2" {
			labels[coreGroup+"/"+name] = name
		}
	}
	crd["metadata"].(fields)["labels"] = labels
	if len(versions) > 1 {
		spec["conversion"] = fields{"strategy": "Webhook", "webhook": fields{"conversionReviewVersions": []any{"v1"}, "clientConfig": fields{"url": url + "/convert", "caBundle": base64Text(ca)}}}
	}
	return crd
}

// webhooksAt has webhooks be called at an address.
func webhooksAt(o fields, prefix, url string, ca []byte) fields {
	meta := o["metadata"].(fields)
	meta["name"] = prefix + "-" + meta["name"].(string)
	for _, h := range o["webhooks"].([]any) {
		service := h.(fields)["clientConfig"].(fields)["service"].(fields)
		h.(fields)["clientConfig"] = fields{"url": url + service["path"].(string), "caBundle": base64Text(ca)}
	}
	return o
}

// fakeCRD defines a kind of the infrastructure provider, with any fields.
func fakeCRD(kind, group string) fields {
	plural := strings.ToLower(kind) + "s"
	return fields{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": fields{"name": plural + "." + group, "labels": fields{coreGroup + "/v1beta1": "v1beta2", coreGroup + "/v1beta2": "v1beta2", clusterctlLabel: ""}},
		"spec": fields{"group": group, "scope": "Namespaced", "names": fields{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
			"versions": []any{fields{"name": "v1beta2", "served": true, "storage": true, "subresources": fields{"status": fields{}},
				"schema": fields{"openAPIV3Schema": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}
}

// make creates an object, once the server takes it.
func (c *cluster) make(t *testing.T, o fields) *unstructured.Unstructured {
	t.Helper()
	made := &unstructured.Unstructured{Object: o}
	eventually(t, func() error {
		made.SetResourceVersion("")
		return client.IgnoreAlreadyExists(c.admin.Create(t.Context(), made))
	})
	return made
}

// secrets stores what Cluster API wants to know of the workload cluster: a kubeconfig and its CA.
func (f *fleet) secrets(t *testing.T) {
	t.Helper()
	as := f.user(t, "admin", "system:masters")
	path := f.writeKubeconfig(t, "cluster-api.kubeconfig", &clientcmdapi.AuthInfo{ClientCertificateData: as.CertData, ClientKeyData: as.KeyData})
	for name, data := range map[string]map[string][]byte{
		"kubeconfig": {"value": controlplane.Read(t, path)},
		"ca":         {"tls.crt": controlplane.CertificatePEM(f.ca.Cert), "tls.key": controlplane.PrivatePEM(t, f.ca.Key)},
	} {
		secret := &corev1.Secret{Type: coreGroup + "/secret", Data: data,
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fleetCluster + "-" + name, Labels: map[string]string{coreGroup + "/cluster-name": fleetCluster}}}
		if err := f.home.admin.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
}

// ref refers to an object of the fleet, as its version does.
func (f *fleet) ref(group, kind, name string) fields {
	if f.version == "v1beta1" {
		version := "v1beta2"
		if group == bootstrapGroup {
			version = "v1beta1"
		}
		return fields{"apiVersion": group + "/" + version, "kind": kind, "name": name, "namespace": metav1.NamespaceDefault}
	}
	return fields{"apiGroup": group, "kind": kind, "name": name}
}

// object makes an object in the namespace of the fleet.
func object(group, version, kind, name string, spec fields) fields {
	return fields{"apiVersion": group + "/" + version, "kind": kind, "metadata": fields{"name": name, "namespace": metav1.NamespaceDefault}, "spec": spec}
}

// objects makes the Cluster, with its infrastructure and control plane, and a MachineDeployment.
func (f *fleet) objects(t *testing.T, replicas int) {
	t.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(f.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := fields{"host": host, "port": atoi(t, port)}
	infra := f.home.make(t, object(infraGroup, "v1beta2", "FakeCluster", fleetCluster, fields{"controlPlaneEndpoint": endpoint}))
	control := f.home.make(t, object(controlGroup, "v1beta2", "FakeControlPlane", fleetCluster, fields{"version": "v1.36.3"}))
	f.home.make(t, object(infraGroup, "v1beta2", "FakeMachineTemplate", fleetCluster, fields{"template": fields{"spec": fields{}}}))
	f.home.make(t, object(bootstrapGroup, f.version, "KubeadmConfigTemplate", fleetCluster, fields{"template": fields{"spec": fields{
		"joinConfiguration": fields{"nodeRegistration": fields{"name": "{{ ds.meta_data.local_hostname }}"}}}}}))
	f.home.setStatus(t, infra, fields{"ready": true, "initialization": fields{"provisioned": true}})
	f.home.setStatus(t, control, fields{"ready": true, "initialized": true, "initialization": fields{"controlPlaneInitialized": true}, "version": "v1.36.3", "externalManagedControlPlane": true})
	f.home.make(t, object(coreGroup, f.version, "Cluster", fleetCluster, fields{"controlPlaneEndpoint": endpoint,
		"infrastructureRef": f.ref(infraGroup, "FakeCluster", fleetCluster), "controlPlaneRef": f.ref(controlGroup, "FakeControlPlane", fleetCluster)}))
	f.home.make(t, object(coreGroup, f.version, "MachineDeployment", fleetCluster, fields{"clusterName": fleetCluster, "replicas": int64(replicas),
		"selector": fields{"matchLabels": fields{"d": fleetCluster}},
		"template": fields{"metadata": fields{"labels": fields{"d": fleetCluster, coreGroup + "/cluster-name": fleetCluster}},
			"spec": fields{"clusterName": fleetCluster, "version": "v1.36.3", "bootstrap": fields{"configRef": f.ref(bootstrapGroup, "KubeadmConfigTemplate", fleetCluster)},
				"infrastructureRef": f.ref(infraGroup, "FakeMachineTemplate", fleetCluster)}}}))
}

// mayReadSigners makes the Role with which a controller compares the signers that the provider states.
func (f *fleet) mayReadSigners(t *testing.T, account string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "signers-of-the-provider"}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{infraGroup}, Resources: []string{"fakeclusters"}, Verbs: []string{"get"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceDefault, Name: account}}},
	} {
		if err := f.home.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// states has the infrastructure provider state a signer of client certificates.
func (f *fleet) states(t *testing.T, signerName string) {
	t.Helper()
	infra := &unstructured.Unstructured{Object: object(infraGroup, "v1beta2", "FakeCluster", fleetCluster, nil)}
	f.home.setStatus(t, infra, fields{"ready": true, "initialization": fields{"provisioned": true}, "kubeletClientCertificateSigner": signerName})
}

// setStatus replaces an object's status.
func (c *cluster) setStatus(t *testing.T, o *unstructured.Unstructured, status fields) {
	t.Helper()
	eventually(t, func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		o.Object["status"] = maps.Clone(status)
		return c.admin.Status().Update(t.Context(), o)
	})
}

// list returns the objects of a kind of the fleet.
func (f *fleet) list(ctx context.Context, group, version, kind string) ([]unstructured.Unstructured, error) {
	l := new(unstructured.UnstructuredList)
	l.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind + "List"})
	err := f.home.admin.List(ctx, l, client.InNamespace(metav1.NamespaceDefault))
	return l.Items, err
}

// A fleetMachine is a Machine with the token that the bootstrap provider has made for it.
type fleetMachine struct {
	*unstructured.Unstructured
	token      string
	providerID string
}

// machines waits for n Machines with bootstrap data, and provisions each one's infrastructure, with a
// provider ID.
func (f *fleet) machines(t *testing.T, n int) (all []fleetMachine) {
	t.Helper()
	eventually(t, func() error {
		all = nil
		list, err := f.list(t.Context(), coreGroup, f.version, "Machine")
		if err != nil {
			return err
		}
		for i := range list {
			m := &list[i]
			if m.GetLabels()[coreGroup+"/cluster-name"] != fleetCluster || m.GetDeletionTimestamp() != nil {
				continue
			}
			name, _, _ := unstructured.NestedString(m.Object, "spec", "bootstrap", "configRef", "name")
			secret, _, _ := unstructured.NestedString(m.Object, "spec", "bootstrap", "dataSecretName")
			if name == "" || secret == "" {
				return fmt.Errorf("Machine %s has no bootstrap data yet: %v", m.GetName(), m.Object["status"])
			}
			config := new(unstructured.Unstructured)
			config.SetGroupVersionKind(schema.GroupVersionKind{Group: bootstrapGroup, Version: f.version, Kind: "KubeadmConfig"})
			if err := f.home.admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, config); err != nil {
				return err
			}
			token, _, _ := unstructured.NestedString(config.Object, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")
			all = append(all, fleetMachine{m, token, "fake://" + m.GetName()})
		}
		if len(all) != n {
			return fmt.Errorf("%d Machines, want %d", len(all), n)
		}
		return nil
	})
	return all
}

// provision gives a Machine's infrastructure a provider ID, which Cluster API copies to the Machine.
func (f *fleet) provision(t *testing.T, m *fleetMachine) {
	t.Helper()
	name, _, _ := unstructured.NestedString(m.Object, "spec", "infrastructureRef", "name")
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: infraGroup, Version: "v1beta2", Kind: "FakeMachine"})
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, o); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(o.Object, m.providerID, "spec", "providerID"); err != nil {
			return err
		}
		return f.home.admin.Update(t.Context(), o)
	})
	f.home.setStatus(t, o, fields{"ready": true, "initialization": fields{"provisioned": true},
		"addresses": []any{fields{"type": "InternalDNS", "address": m.GetName() + ".example.com."}}})
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		if id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID"); id != m.providerID {
			return fmt.Errorf("Machine %s has provider ID %q, want %s", m.GetName(), id, m.providerID)
		}
		if all, _, _ := unstructured.NestedSlice(m.Object, "status", "addresses"); len(all) == 0 {
			return fmt.Errorf("Machine %s has no addresses", m.GetName())
		}
		return nil
	})
}
