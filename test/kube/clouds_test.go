package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const (
	cloudSubscription = "8a205152-b25a-417f-a676-80465535a6c9"
	cloudVM           = "b1310a36-d400-46f6-82cb-6217df846586"
	cloudInstance     = "i-0123456789abcdef0"
	plainInstance     = "i-0fedcba9876543210" // without a NitroTPM, as the next
	otherInstance     = "i-0fedcba9876543211"
	cloudAccount      = "123456789012"
)

// cloudInventory lists the machines: the n-th of Google's project is vm-n. That of tpm-1 is
// one of Google's, too, known by its TPM; that of gce-2 is not known yet.
const cloudInventory = `machines:
- {nodeName: gce-1, identity: 'gce:example-project/1', providerID: 'gce://example-project/europe-west1-b/vm-1'}
- {nodeName: gce-2}
- {nodeName: tpm-1, identity: 'gce:example-project/4', kind: tpm}
- {nodeName: azure-1, identity: 'azure:` + cloudSubscription + "/" + cloudVM + `', kind: azure,
   providerID: 'azure:///subscriptions/` + cloudSubscription + `/resourceGroups/EXAMPLE-RG/providers/Microsoft.Compute/virtualMachines/vm-1'}
- {nodeName: nitro-1, identity: 'aws:aws/eu-west-1/` + cloudInstance + `', kind: nitro}
- {nodeName: ec2-1, identity: 'aws:aws/eu-west-1/` + plainInstance + `', kind: ec2, providerID: 'aws:///eu-west-1a/` + plainInstance + `'}
`

// clouds are the clouds and the maker of TPMs.
type clouds struct {
	google *cloudtest.GCE
	azure  *cloudtest.Azure
	nitro  *cloudtest.Nitro
	ec2    *cloudtest.EC2
	vendor *tpmsim.CA
}

// cloudControllers have the controller trust them, in mode Approval.
func (c *cluster) cloudControllers(t *testing.T, program string) (*clouds, *replica) {
	t.Helper()
	vendor := newCA(t, "")
	w := &clouds{cloudtest.NewGCE(t), cloudtest.NewAzure(t, cloudtest.AzureOptions{}), cloudtest.NewNitro(t), cloudtest.NewEC2(t, "eu-west-1"), vendor}
	serveSTS(t, c.dir, w.ec2)
	keys, err := jws.MarshalJWKS(w.google.Keys())
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, c.dir, "inventory.yaml", []byte(cloudInventory))
	trust := func(config map[string]any) {
		config["tpm"] = map[string]any{"akIssuers": []any{map[string]any{"rootsFile": controlplane.Write(t, c.dir, "ak.pem", controlplane.CertificatePEM(vendor.Root())), "profile": "google"}}}
		config["gce"] = map[string]any{"projects": []string{"example-project"}, "keysFile": controlplane.Write(t, c.dir, "keys.json", keys)}
		config["azure"] = map[string]any{"subscriptions": []string{cloudSubscription}, "rootsFile": controlplane.Write(t, c.dir, "azure.pem", controlplane.CertificatePEM(w.azure.Root())),
			"intermediatesFile": controlplane.Write(t, c.dir, "azure-intermediates.pem", controlplane.CertificatePEM(w.azure.Intermediate()))}
		config["nitro"] = map[string]any{"rootsFile": controlplane.Write(t, c.dir, "nitro.pem", controlplane.CertificatePEM(w.nitro.Root()))}
		config["ec2"] = map[string]any{"roles": []string{"arn:aws:iam::" + cloudAccount + ":role/node"},
			"certificateFiles": map[string]any{"eu-west-1": controlplane.Write(t, c.dir, "ec2.pem", controlplane.CertificatePEM(w.ec2.Certificates()["eu-west-1"]))}}
		config["membership"] = map[string]any{"mode": "Approval", "kind": "gce", "road": "ak"}
	}
	for name, row := range map[string]struct{ kind, field, want string }{
		"projects":      {"gce", "projects", "gce: configuration: got no projects"},
		"subscriptions": {"azure", "subscriptions", "azure: configuration: got no subscriptions"},
	} {
		t.Run("no "+name, func(t *testing.T) { // of everybody's machines the first would be the node
			path := c.programConfig(t, name, func(config map[string]any) {
				trust(config)
				delete(config[row.kind].(map[string]any), row.field)
				config["membership"].(map[string]any)["mode"] = "FirstUse"
			})
			user := c.kubeconfig(t, name+".kubeconfig", controllerUser)
			if out, err := exec.Command(program, "--config="+path, "--kubeconfig="+user).CombinedOutput(); err == nil || !strings.Contains(string(out), row.want) {
				t.Errorf("got %v: %s, want an error about %s", err, out, row.want)
			}
		})
	}
	r := c.startController(t, program, "controller", trust)
	r.isReady(t)
	return w, r
}

// vm is the n-th machine of a project of Google's.
func vm(project string, n uint64) oid.GCEInstance {
	return oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: project, InstanceID: n, InstanceName: fmt.Sprintf("vm-%d", n)}
}

// source asks the metadata server of a machine of Google's.
func (w *clouds) source(t *testing.T, m oid.GCEInstance) *gce.Source {
	t.Helper()
	server := w.google.Serve(m)
	t.Cleanup(server.Close)
	source, err := gce.NewSource(gce.SourceOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// liar is a machine that claims to be another one, or shows a document of another.
type liar struct{ claims, documents document.Source }

func (l liar) Machine(ctx context.Context) (attest.Identity, error) { return l.claims.Machine(ctx) }
func (l liar) Document(ctx context.Context, value []byte) ([]byte, error) {
	return l.documents.Document(ctx, value)
}

// replay shows the first document that it got again and again.
type replay struct {
	document.Source
	first []byte
}

func (r *replay) Document(ctx context.Context, value []byte) ([]byte, error) {
	if r.first != nil {
		return r.first, nil
	}
	var err error
	r.first, err = r.Source.Document(ctx, value)
	return r.first, err
}

// documentNode is a node that files its requests itself, with the documents of a source.
func (c *cluster) documentNode(t *testing.T, provider, name string, source document.Source) *attesttest.Node {
	t.Helper()
	prover, err := document.NewProver(provider, 1, source)
	if err != nil {
		t.Fatal(err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		t.Fatal(err)
	}
	n := &attesttest.Node{NodeOptions: attesttest.NodeOptions{Name: name}, Attester: attester}
	c.subject(t, n)
	return n
}

// subject gives a node of this cluster a key, and the request for Kubernetes' own signer.
func (c *cluster) subject(t *testing.T, n *attesttest.Node) {
	t.Helper()
	clusterID := c.clusterID(t)
	n.Key = controlplane.NewKey(t)
	var err error
	if n.Certified, err = tpmkey.SoftwareKey(n.Key); err != nil {
		t.Fatal(err)
	}
	request, err := csr.Create(csr.PurposeClient, n.Key, n.Name, csr.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Subject = attest.Subject{Request: request, SignerName: csr.SignerKubeAPIServerClientKubelet, ClusterID: clusterID, ExpirationSeconds: 3600}
}

// answered files a node's hello and its answer, and returns that when it is decided about.
func answered(t *testing.T, as client.Client, n *attesttest.Node) (*csr.Spec, *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	answer := answers(t, as, n)
	return answer, decided(t, as, file(t, as, answer))
}

// refusedFor files a node's messages, and wants the answer denied for a reason.
func refusedFor(t *testing.T, as client.Client, n *attesttest.Node, reason string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	_, object := answered(t, as, n)
	if got := object.Status.Conditions[0]; got.Type != certificatesv1.CertificateDenied || got.Reason != reason {
		t.Errorf("got %s %s: %s, want Denied %s", got.Type, got.Reason, got.Message, reason)
	}
	return object
}

// TestClouds has machines of three clouds, and one by its TPM, join one control plane: the
// controller's binary, and the authenticator's on machines with metadata servers.
func TestClouds(t *testing.T) {
	program, authenticator := buildProgram(t, "node-attestation-controller"), buildProgram(t, "kubelet-authenticator")
	c := startCluster(t)
	c.prepare(t)
	manifests := manifests(t, "clouds/rbac.yaml")
	c.apply(t, "clouds/rbac.yaml")
	c.applyAdmission(t)
	c.startSigner(t)
	w, r := c.cloudControllers(t, program)
	as := c.client(t, c.bearer(t, attesttest.TokenID))
	pairs := map[string]tls.Certificate{}

	t.Run("gce", func(t *testing.T) {
		server := w.google.Serve(vm("example-project", 1))
		t.Cleanup(server.Close)
		pairs["gce-1"] = c.joinsAndRenews(t, c.install(t, authenticator, "gce-1", nil, func(config map[string]any) {
			config["providerID"] = "auto"
			config["evidence"] = map[string]any{"gce": map[string]any{"metadataURL": server.URL}}
		}))
	})
	t.Run("azure", func(t *testing.T) {
		server := w.azure.Serve(cloudtest.AzureMachine{VMID: cloudVM, SubscriptionID: cloudSubscription})
		t.Cleanup(server.Close)
		pairs["azure-1"] = c.joinsAndRenews(t, c.install(t, authenticator, "azure-1", nil, func(config map[string]any) {
			config["providerID"] = "auto"
			config["evidence"] = map[string]any{"azure": map[string]any{"metadataURL": server.URL, "timeout": "30s"}}
		}))
	})
	t.Run("nitro", func(t *testing.T) {
		source, err := nitro.NewSource(nitro.SourceConfig{Ask: w.nitro.Asker(cloudtest.NitroMachine{InstanceID: cloudInstance, Region: "eu-west-1"})})
		if err != nil {
			t.Fatal(err)
		}
		c.joins(t, as, c.documentNode(t, nitro.Provider, "nitro-1", source))
	})
	t.Run("provider IDs", func(t *testing.T) { c.testProviderIDs(t, r, pairs) })
	t.Run("ec2", func(t *testing.T) {
		server := w.ec2.Serve(instance(plainInstance))
		t.Cleanup(server.Close)
		c.joinsAndRenews(t, c.install(t, authenticator, "ec2-1", nil, func(config map[string]any) {
			config["evidence"] = map[string]any{"ec2": map[string]any{"metadataURL": server.URL}}
		}))
	})
	t.Run("attacks", func(t *testing.T) { c.testCloudAttacks(t, w, as) })
	t.Run("a role's credentials", func(t *testing.T) { c.testRoles(t, w, as) })
	t.Run("one machine by two kinds", func(t *testing.T) { c.testStepDown(t, w, as) })
	t.Run("an operator", func(t *testing.T) { c.testCloudOperator(t, w, as) })
	t.Run("metrics", func(t *testing.T) {
		got := counted(t, r, "nodeattest_challenges_total")
		for _, kind := range []string{"tpm", "gce", "azure", "nitro", "ec2"} {
			if got[`kind="`+kind+`",state="issued"`] < 1 || got[`kind="`+kind+`",state="answered"`] < 1 {
				t.Errorf("challenges of %s: %v", kind, got)
			}
		}
	})
	r.checkLog(t)
	c.checkRights(t, manifests)
}

// joinsAndRenews runs the authenticator: the first certificate comes with the bootstrap
// token, the second as the node.
func (c *cluster) joinsAndRenews(t *testing.T, m *nodeMachine) tls.Certificate {
	t.Helper()
	_, pair := m.credential(t)
	c.recorded(t, m.name, pair.Leaf)
	if stdout, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	if s := m.status(t); !s.Usable || len(s.Problems) != 0 || c.filedBy(t, csr.NodeUserPrefix+m.name) != 2 {
		t.Errorf("status %+v", s)
	}
	return pair
}

// testCloudAttacks comes as the node gce-1, or with copied messages.
func (c *cluster) testCloudAttacks(t *testing.T, w *clouds, as client.Client) {
	ours, theirs := w.source(t, vm("example-project", 1)), w.source(t, vm("example-project", 3))
	t.Run("a machine of another project", func(t *testing.T) {
		refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-1", w.source(t, vm("attackers-project", 1))), "GceProject")
	})
	t.Run("another machine of the project", func(t *testing.T) {
		refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-1", theirs), "NotAMember")
	})
	t.Run("another machine's document", func(t *testing.T) {
		refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-1", liar{claims: ours, documents: theirs}), "MachineClaim")
	})
	t.Run("a second key for a stolen token", func(t *testing.T) {
		refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-1", ours), "NotAMember")
	})
	t.Run("a document of another challenge", func(t *testing.T) {
		again := &replay{Source: ours}
		refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-1", again), "NotAMember")
		refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-1", again), "QualifyingData")
	})
	t.Run("a copied answer", func(t *testing.T) {
		answer, _ := answered(t, as, c.documentNode(t, gce.Provider, "gce-1", ours))
		denied(t, c.admin, file(t, c.client(t, c.bearer(t, otherTokenID)), answer), "BindingRequester")
	})
	t.Run("an enclave of the instance's", func(t *testing.T) {
		ask := func(_ context.Context, nonce, data []byte) ([]byte, error) {
			return w.nitro.Enclave(cloudtest.NitroMachine{InstanceID: cloudInstance, Region: "eu-west-1"}, nonce, data)
		}
		source, err := nitro.NewSource(nitro.SourceConfig{Ask: w.nitro.Asker(cloudtest.NitroMachine{InstanceID: cloudInstance, Region: "eu-west-1"})})
		if err != nil {
			t.Fatal(err)
		}
		_, object := answered(t, as, c.documentNode(t, nitro.Provider, "nitro-1", liar{claims: source, documents: enclave(ask)}))
		if got := object.Status.Conditions[0]; got.Type != certificatesv1.CertificateDenied || !strings.HasPrefix(got.Reason, "Nitro") {
			t.Errorf("got %s %s: %s", got.Type, got.Reason, got.Message)
		}
	})
}

// instance is a machine of Amazon EC2's in our account, with the role of nodes.
func instance(id string) cloudtest.EC2Machine {
	return cloudtest.EC2Machine{AccountID: cloudAccount, Region: "eu-west-1", InstanceID: id, Role: "node"}
}

// instanceSource asks the metadata server of an instance.
func (w *clouds) instanceSource(t *testing.T, m cloudtest.EC2Machine) *ec2.Source {
	t.Helper()
	server := w.ec2.Serve(m)
	t.Cleanup(server.Close)
	source, err := ec2.NewSource(ec2.SourceOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// testRoles comes as the node ec2-1, with credentials of other roles.
func (c *cluster) testRoles(t *testing.T, w *clouds, as client.Client) {
	ours := w.instanceSource(t, instance(plainInstance))
	person, admin := instance(plainInstance), instance(plainInstance)
	person.Session, admin.Role = "alice", "admin"
	for name, row := range map[string]struct {
		source document.Source
		reason string
	}{
		"a person with the role":              {w.instanceSource(t, person), "Ec2Session"},
		"another role of the instance":        {w.instanceSource(t, admin), "Ec2Role"},
		"another instance":                    {w.instanceSource(t, instance(otherInstance)), "NotAMember"},
		"another instance, under the name":    {liar{claims: ours, documents: w.instanceSource(t, instance(otherInstance))}, "MachineClaim"},
		"a second key for stolen credentials": {ours, "NotAMember"},
	} {
		t.Run(name, func(t *testing.T) {
			refusedFor(t, as, c.documentNode(t, ec2.Provider, "ec2-1", row.source), row.reason)
		})
	}
	t.Run("a request of another challenge", func(t *testing.T) {
		again := &replay{Source: ours}
		object := refusedFor(t, as, c.documentNode(t, ec2.Provider, "ec2-1", again), "NotAMember")
		refusedFor(t, as, c.documentNode(t, ec2.Provider, "ec2-1", again), "QualifyingData")
		c.testRecorded(t, object)
	})
}

// testRecorded has an operator decide a recorded answer once more. STS is not asked, so it cannot be.
func (c *cluster) testRecorded(t *testing.T, object *certificatesv1.CertificateSigningRequest) {
	var ring corev1.Secret
	if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "challenge-keys"}, &ring); err != nil {
		t.Fatal(err)
	}
	args := []string{"verify"}
	for name, o := range map[string]any{"--key-ring": &ring, "": object} {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if path := controlplane.Write(t, t.TempDir(), "object.json", text); name == "" {
			args = append(args, path)
		} else {
			args = append(args, name, path)
		}
	}
	out, err := exec.Command(buildProgram(t, "kubectl-nodeattest"), append(args, "--config", filepath.Join(c.dir, "controller.yaml"))...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `"outcome": "undecided"`) || !strings.Contains(string(out), "is not asked about a recorded request") {
		t.Errorf("%v: %s", err, out)
	}
}

// enclave has the document of an enclave.
type enclave func(ctx context.Context, nonce, data []byte) ([]byte, error)

func (enclave) Machine(context.Context) (attest.Identity, error) { return "", nil }
func (e enclave) Document(ctx context.Context, value []byte) ([]byte, error) {
	return e(ctx, value, []byte("nodeattest/nitro/v1"))
}

// testStepDown has machines of Google's come by the kind by which they are not known: one
// that is listed by its TPM with a token, and one by a token with its TPM.
func (c *cluster) testStepDown(t *testing.T, w *clouds, as client.Client) {
	byTPM := func(m oid.GCEInstance, name string) *attesttest.Node {
		device := tpmsim.Swtpm(t, tpmsim.Options{CA: w.vendor, Instance: &m})
		n := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Name: name, Profile: tpmcert.ProfileGoogle(), AK: tpmkind.GCERSA()})
		c.subject(t, n)
		return n
	}
	listed := vm("example-project", 4)
	c.joins(t, as, byTPM(listed, "tpm-1"))
	if id := c.providerIDOf(t, "tpm-1"); id != "gce://example-project/europe-west1-b/vm-4" {
		t.Errorf("the record has provider ID %q, and Google's certificate vm-4's", id)
	}
	refusedFor(t, as, c.documentNode(t, gce.Provider, "tpm-1", w.source(t, listed)), "NotAMember")
	refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-2", w.source(t, listed)), "NotAMember")
	if _, err := challenged(t, as, byTPM(vm("example-project", 1), "gce-1")); err == nil || !strings.Contains(err.Error(), "NotAMember") {
		t.Errorf("a machine that is known by its tokens: %v", err)
	}
}

// testCloudOperator has an operator admit an unknown machine.
func (c *cluster) testCloudOperator(t *testing.T, w *clouds, as client.Client) {
	o := c.newOperator(t)
	data := map[string]string{"inventory.yaml": cloudInventory}
	config := controlplane.Read(t, filepath.Join(c.dir, "controller.yaml"))
	data["config.yaml"] = string(config)
	if err := c.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "node-attestation", Namespace: namespace}, Data: data}); err != nil {
		t.Fatal(err)
	}
	source := w.source(t, vm("example-project", 2))
	request := refusedFor(t, as, c.documentNode(t, gce.Provider, "gce-2", source), "NotAMember")
	for _, row := range []struct {
		args []string
		want []string
	}{
		{[]string{"pending"}, []string{request.Name, "gce-2", "gce:example-project/2"}},
		{[]string{"explain", request.Name}, []string{"gce:example-project/2", "document", "not-a-member", "kubectl nodeattest approve gce-2 --machine gce:example-project/2"}},
		{[]string{"approve", "gce-2", "--machine", "gce:example-project/2"}, []string{"node gce-2 is machine gce:example-project/2"}},
	} {
		out, err := o.try(t.Context(), row.args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(out)
		for _, want := range row.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q", row.args, want)
			}
		}
	}
	c.joins(t, as, c.documentNode(t, gce.Provider, "gce-2", source))
	if id := c.providerIDOf(t, "gce-2"); id != "gce://example-project/europe-west1-b/vm-2" {
		t.Errorf("the record has provider ID %q, and the token vm-2's", id)
	}
	for _, row := range []struct {
		node    string
		machine uint64
		want    []string
	}{
		{"gce-2", 2, []string{"asks for a certificate of another key with a bootstrap token", "kubectl nodeattest release gce-2"}},
		{"tpm-1", 4, []string{"got evidence of gce, want evidence of tpm, by which the inventory knows node tpm-1", "may want weaker evidence"}},
	} {
		object := refusedFor(t, as, c.documentNode(t, gce.Provider, row.node, w.source(t, vm("example-project", row.machine))), "NotAMember")
		out, err := o.try(t.Context(), "explain", object.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range row.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", row.node, want, out)
			}
		}
		if strings.Contains(out, "registry-provider-id") { // the token has stated it, and not the inventory
			t.Errorf("%s: a provider ID is missed in\n%s", row.node, out)
		}
	}
}
