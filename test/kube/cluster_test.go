package kube

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// cluster is a running kube-apiserver.
type cluster struct {
	ca     *controlplane.Authority
	url    string
	dir    string
	scheme *runtime.Scheme
	// auditLog is the file of the audit log.
	auditLog string
	// server is the API server's process.
	server *process
	// admin may do everything.
	admin client.Client
	// signingDuration is for how long Kubernetes' own signer signs; "" means an hour.
	signingDuration string
}

// startCluster starts etcd and kube-apiserver, and stops them when the test ends. The API server
// also gets the flags of a test.
func startCluster(t *testing.T, flagsOf ...func(c *cluster) []string) *cluster {
	t.Helper()
	return startClusterFrom(t, controlplane.Binaries(t), flagsOf...)
}

// startClusterFrom is startCluster with the programs of a folder.
func startClusterFrom(t *testing.T, bin string, flagsOf ...func(c *cluster) []string) *cluster {
	t.Helper()
	dir, ports := t.TempDir(), controlplane.FreePorts(t, 3)
	c := &cluster{ca: controlplane.NewAuthority(t), url: "https://127.0.0.1:" + ports[2], dir: dir, scheme: runtime.NewScheme(), auditLog: filepath.Join(dir, "audit.log")}
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(c.scheme); err != nil {
			t.Fatal(err)
		}
	}
	etcd, flags := controlplane.Etcd(dir, ports[0], ports[1])
	start(t, filepath.Join(bin, "etcd"), dir, flags...).ready(t, func() error { return controlplane.Healthy(etcd + "/readyz") })
	server := append(c.ca.APIServer(t, dir, etcd, ports[2], controlplane.NewKey(t)),
		"--audit-policy-file="+controlplane.Write(t, dir, "audit.yaml", []byte(auditPolicy)), "--audit-log-path="+c.auditLog)
	for _, of := range flagsOf {
		server = append(server, of(c)...)
	}
	if slices.ContainsFunc(server, func(flag string) bool { return strings.HasPrefix(flag, "--authentication-config=") }) {
		server = slices.DeleteFunc(server, func(flag string) bool { return strings.HasPrefix(flag, "--anonymous-auth=") }) // it takes one of them
	}
	c.server = start(t, filepath.Join(bin, "kube-apiserver"), dir, server...)
	config := c.user(t, "admin", "system:masters")
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c.server.ready(t, func() error {
		return clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
	})
	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kube-apiserver %s, built with %s", version.GitVersion, version.GoVersion)
	c.admin = c.client(t, config)
	return c
}

// user connects with a certificate of the cluster's CA.
func (c *cluster) user(t *testing.T, name string, groups ...string) *rest.Config {
	t.Helper()
	config := &rest.Config{
		Host:            c.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: controlplane.CertificatePEM(c.ca.Cert)},
		QPS:             -1, // no throttling in a test
		WarningHandler:  rest.NoWarnings{},
		Timeout:         30 * time.Second,
	}
	config.CertData, config.KeyData = c.ca.Issue(t, pkix.Name{CommonName: name, Organization: groups}, x509.ExtKeyUsageClientAuth)
	return config
}

func (c *cluster) client(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	made, err := client.New(config, client.Options{Scheme: c.scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// applyCRDs makes the custom resource definitions as they are shipped, with no field
// unknown to the server, and waits until it serves them.
func (c *cluster) applyCRDs(t *testing.T) {
	t.Helper()
	manifests := manifests(t, "crd/*.yaml")
	for _, manifest := range manifests {
		object := c.create(t, manifest)
		eventually(t, func() error {
			if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
			for _, condition := range conditions {
				if m, _ := condition.(map[string]any); m["type"] == "Established" && m["status"] == "True" {
					return nil
				} else if m["type"] == "NonStructuralSchema" && m["status"] == "True" {
					t.Fatalf("%s: %v", object.GetName(), m["message"])
				}
			}
			return fmt.Errorf("%s is not established: %v", object.GetName(), conditions)
		})
	}
	for _, list := range []client.ObjectList{&v1alpha1.AttestedNodeList{}, &v1alpha1.AttestedMachineList{}, &v1alpha1.AttestedMachineUIDList{}} {
		eventually(t, func() error { return c.admin.List(t.Context(), list) })
	}
}

// apply makes the objects of shipped files, with changes of their texts.
func (c *cluster) apply(t *testing.T, file string, replaced ...string) {
	t.Helper()
	manifests := manifests(t, file)
	for _, manifest := range manifests {
		c.create(t, []byte(strings.NewReplacer(replaced...).Replace(string(manifest))))
	}
}

func decode(t *testing.T, manifest []byte) *unstructured.Unstructured {
	t.Helper()
	object := new(unstructured.Unstructured)
	if err := yaml.UnmarshalStrict(manifest, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func (c *cluster) create(t *testing.T, manifest []byte) *unstructured.Unstructured {
	t.Helper()
	object := decode(t, manifest)
	if err := c.admin.Create(t.Context(), object, client.FieldValidation("Strict")); err != nil {
		t.Fatal(err)
	}
	return object
}

// clear takes every object of the registry away.
func (c *cluster) clear(t testing.TB) {
	t.Helper()
	var nodes v1alpha1.AttestedNodeList
	var machines v1alpha1.AttestedMachineList
	var uids v1alpha1.AttestedMachineUIDList
	for _, list := range []client.ObjectList{&nodes, &machines, &uids} {
		if err := c.admin.List(context.Background(), list); err != nil {
			t.Fatal(err)
		}
	}
	var objects []client.Object
	for i := range nodes.Items {
		objects = append(objects, &nodes.Items[i])
	}
	for i := range machines.Items {
		objects = append(objects, &machines.Items[i])
	}
	for i := range uids.Items {
		objects = append(objects, &uids.Items[i])
	}
	for _, o := range objects {
		if err := client.IgnoreNotFound(c.admin.Delete(context.Background(), o)); err != nil {
			t.Fatal(err)
		}
	}
}

// patience is how long a step is waited for that may come late.
const patience = controlplane.Patience

// errNotYet has a step repeated that says no more.
var errNotYet = errors.New("it does not come")

// startJoinable starts a cluster that is prepared for joins, with Kubernetes' own signer.
func startJoinable(t *testing.T, flagsOf ...func(c *cluster) []string) *cluster {
	t.Helper()
	c := startCluster(t, flagsOf...)
	c.prepare(t)
	c.startSigner(t)
	return c
}

// requests returns all certificate requests.
func (c *cluster) requests(t *testing.T) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	var all certificatesv1.CertificateSigningRequestList
	if err := c.admin.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// clusterID returns the identifier of the cluster.
func (c *cluster) clusterID(t *testing.T) string {
	t.Helper()
	id, err := attest.ClusterID(c.ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// manifests returns the shipped manifests in the files that match a pattern.
func manifests(t *testing.T, pattern string) [][]byte {
	t.Helper()
	found, err := deploy.Manifests(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// newCA makes a CA of TPMs; "" is the usual name.
func newCA(t *testing.T, name string) *tpmsim.CA {
	t.Helper()
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// eventually repeats a step that the server cannot take yet.
func eventually(t *testing.T, step func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = step(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
