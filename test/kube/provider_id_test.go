package kube

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// lyingMetadata is a metadata server of Google's that gives one answer of its own, as a pod could
// that stands in its way.
func lyingMetadata(t *testing.T, server *cloudtest.Server, path, body string) string {
	t.Helper()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	honest := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }} // no word of a proxy
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			w.Header().Set("Metadata-Flavor", "Google")
			io.WriteString(w, body)
			return
		}
		honest.ServeHTTP(w, r)
	}))
	t.Cleanup(liar.Close)
	return liar.URL
}

// providerIDOf is the provider ID that a node's record has, and each of its certificates.
func (c *cluster) providerIDOf(t *testing.T, nodeName string) string {
	t.Helper()
	var record v1alpha1.AttestedNode
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: nodeName}, &record); err != nil {
		t.Fatal(err)
	}
	for _, certificate := range record.Spec.Certificates {
		if certificate.ProviderID != record.Spec.ProviderID {
			t.Errorf("node %s: a certificate of %q, and a record of %q", nodeName, certificate.ProviderID, record.Spec.ProviderID)
		}
	}
	return record.Spec.ProviderID
}

// registers makes a node's Node, as the kubelet of that node does with --provider-id.
func (c *cluster) registers(t *testing.T, pair tls.Certificate, nodeName, providerID string) client.Client {
	t.Helper()
	kubelet := c.withCertificate(t, pair)
	if err := kubelet.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: corev1.NodeSpec{ProviderID: providerID}}); err != nil {
		t.Fatal(err)
	}
	return kubelet
}

// differ waits until the controller says how many Nodes have another provider ID than their records.
func differ(t *testing.T, r *replica, want float64) {
	t.Helper()
	eventually(t, func() error {
		if got := counted(t, r, "nodeattest_provider_ids_differ"); got[""] != want || len(got) != 1 {
			return fmt.Errorf("%v differ, want %g", got, want)
		}
		return nil
	})
}

// TestProviderIDs has machines of Google's, without provider IDs in the inventory, get certificates from
// our own signer, which wants one from each: the request, the certificate, the record and the Node
// agree, and a pod's forgery from the metadata is refused.
func TestProviderIDs(t *testing.T) {
	t.Parallel()
	const signerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-gce"
	program := buildProgram(t, "kubelet-authenticator")
	c := startCluster(t)
	c.prepare(t)
	c.apply(t, "clouds/rbac.yaml")
	c.applyAdmission(t)
	c.apply(t, "signer/rbac.yaml", "kubelet-tpm", "kubelet-gce", "serving-tpm", "serving-gce")
	google := cloudtest.NewGCE(t)
	keys, err := jws.MarshalJWKS(google.Keys())
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, c.dir, "inventory.yaml", []byte("machines: [{nodeName: gce-1}, {nodeName: gce-2}]\n"))
	replicas := c.startOwnSigners(t, func(config map[string]any) {
		config["tpm"] = map[string]any{}
		config["gce"] = map[string]any{"projects": []string{"example-project"}, "keysFile": controlplane.Write(t, c.dir, "keys.json", keys)}
		config["membership"] = map[string]any{"mode": "FirstUse", "kind": "gce"}
		config["signers"] = map[string]any{"names": []any{signerName}, "maxLifetime": "1h", "requireProviderID": true}
		config["signer"].(map[string]any)["certificateFile"] = controlplane.Write(t, c.dir, "signer.crt", controlplane.CertificatePEM(c.ca.Cert))
		config["signer"].(map[string]any)["keyFile"] = controlplane.Write(t, c.dir, "signer.key", controlplane.PrivatePEM(t, c.ca.Key))
	})
	server := google.Serve(vm("example-project", 1))
	t.Cleanup(server.Close)
	node := func(name, metadataURL, providerID string) *nodeMachine {
		return c.install(t, program, name, nil, func(config map[string]any) {
			config["signerName"], config["providerID"] = signerName, providerID
			config["evidence"] = map[string]any{"gce": map[string]any{"metadataURL": metadataURL, "timeout": "10s"}}
		})
	}
	for name, row := range map[string]struct{ path, body, providerID, want string }{
		"another machine's name":  {"instance/name", "vm-2", "auto", "denied with reason ProviderId, "},
		"another zone":            {"instance/zone", "projects/1/zones/europe-west1-c", "auto", "denied with reason ProviderId, "},
		"no name":                 {"instance/name", "", "auto", "providerID: metadata-server: got instance/name"},
		"a name with a line":      {"instance/name", "vm-1\nvm-2", "auto", "providerID: metadata-server: got instance/name"},
		"typed, of another":       {"", "", "gce://example-project/europe-west1-b/vm-2", "denied with reason ProviderId, "},
		"none, where one must be": {"", "", "", "denied with reason ProviderIdMissing, "},
	} {
		t.Run(name, func(t *testing.T) {
			lies := lyingMetadata(t, server, "/computeMetadata/v1/"+row.path, row.body)
			if got := node("gce-2", lies, row.providerID).refused(t); !strings.Contains(got, row.want) {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "gce-2"}, new(v1alpha1.AttestedNode)); !apierrors.IsNotFound(err) {
		t.Errorf("something was recorded for a node that was refused: %v", err)
	}

	m := node("gce-1", server.URL, "auto")
	_, pair := m.credential(t)
	c.recorded(t, m.name, pair.Leaf)
	want := (&gce.Details{Instance: vm("example-project", 1)}).ProviderID()
	extension, err := oid.ParseProviderID(pair.Leaf.Extensions)
	if recorded := c.providerIDOf(t, m.name); err != nil || extension != want || recorded != want {
		t.Errorf("the certificate has %q, %v, and the record %q, want %q", extension, err, recorded, want)
	}
	kubelet := c.registers(t, pair, m.name, extension)
	server.Fail(http.StatusServiceUnavailable, 1<<20) // then it does not renew, and says why
	if _, stderr, err := m.run(t.Context(), "rotate"); err == nil || !strings.Contains(stderr, "try again") {
		t.Errorf("%v: %s, want an error that says to try again", err, stderr)
	}
	server.Fail(0, 0)
	if stdout, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Errorf("%v: %s%s", err, stdout, stderr)
	}
	differ(t, replicas[0], 0)
	// A node cannot go back and forth: it has one provider ID, and cannot remove its Node.
	if err := kubelet.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}); !apierrors.IsForbidden(err) {
		t.Errorf("a node has removed its Node: %v", err)
	}
	if err := kubelet.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"providerID":"gce://other"}}`))); err == nil {
		t.Error("a node has changed its provider ID")
	}
	for _, r := range replicas {
		r.checkLog(t)
	}
}

// testProviderIDs has the Node of a machine come with another provider ID than its record has, which
// Kubernetes' own signer does not write into certificates.
func (c *cluster) testProviderIDs(t *testing.T, r *replica, pairs map[string]tls.Certificate) {
	for name, pair := range pairs {
		if id, err := oid.ParseProviderID(pair.Leaf.Extensions); err == nil {
			t.Errorf("Kubernetes' own signer has written %q", id)
		}
		recorded := c.providerIDOf(t, name)
		c.registers(t, pair, name, oid.CanonicalProviderID(recorded))
		if recorded == "" {
			t.Errorf("node %s has no provider ID in its record", name)
		}
	}
	differ(t, r, 0)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gce-1"}}
	told := func(reason string) (n int) {
		t.Helper()
		var all eventsv1.EventList
		if err := c.admin.List(t.Context(), &all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			t.Fatal(err)
		}
		for _, e := range all.Items {
			if e.Reason == reason && e.Regarding.Kind == "AttestedNode" && e.Regarding.Name == node.Name && e.Regarding.UID != "" {
				n++
			}
		}
		return n
	}
	tells := func(differs, agrees int) {
		t.Helper()
		eventually(t, func() error {
			if d, a := told("ProviderIDDiffers"), told("ProviderIDAgrees"); d != differs || a != agrees {
				return fmt.Errorf("%d Events of a difference and %d of its end, want %d and %d", d, a, differs, agrees)
			}
			return nil
		})
	}
	again := func(providerID string) {
		t.Helper()
		if err := c.admin.Delete(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		c.registers(t, pairs[node.Name], node.Name, providerID)
	}
	again("gce://example-project/europe-west1-b/vm-3")
	differ(t, r, 1)
	tells(1, 0)
	again(c.providerIDOf(t, node.Name))
	differ(t, r, 0)
	tells(1, 1)
	if lines := slices.DeleteFunc(strings.Split(r.text(t), "\n"), func(line string) bool { return !strings.Contains(line, "ProviderIDDiffers") }); len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
}

// testContradictedProviderIDs has machines of Google's come as nodes whose machines the operator knows by
// provider IDs: with an identity in the inventory, and on first use by the certificates of AKs and EKs.
// Another machine of the project is refused, with both IDs in the log, and the machine itself joins.
func (c *cluster) testContradictedProviderIDs(t *testing.T, program, authenticator string, google *tpmsim.CA, akIssuer map[string]any) {
	ekIssuer := maps.Clone(akIssuer)
	ekIssuer["intermediatesFile"] = controlplane.Write(t, c.dir, "google-ek-intermediates.pem", controlplane.CertificatePEM(google.EKIntermediate()))
	machine := func(t *testing.T, n uint64) *tpmsim.TPM {
		instance := vm("example-project", n)
		device := tpmsim.Swtpm(t, tpmsim.Options{CA: google, Instance: &instance, EKs: []tpmsim.Algorithm{tpmsim.RSA2048}})
		ek, err := google.IssueEK(device.EKPublic(tpmsim.RSA2048), tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle, Instance: &instance})
		if err != nil {
			t.Fatal(err)
		}
		tpmlab.WriteNV(t, device, tpmkind.EKRSA2048().CertificateIndex, ek.Raw)
		return device
	}
	for name, way := range map[string]struct {
		number     uint64 // of the machine; the next is another
		inventory  string // where ID is the machine's provider ID
		tpm        map[string]any
		membership map[string]any
		evidence   map[string]any
	}{
		"listed": {21, "{nodeName: listed, identity: 'gce:example-project/21'}, {nodeName: listed-thief, identity: 'gce:example-project/22', providerID: 'ID'}",
			map[string]any{"akIssuers": []any{akIssuer}}, map[string]any{"mode": "Inventory", "kind": "tpm", "road": "ak"}, map[string]any{"ak": "gce-rsa"}},
		"first-ak": {31, "{nodeName: first-ak, providerID: 'ID'}",
			map[string]any{"akIssuers": []any{akIssuer}}, map[string]any{"mode": "FirstUse", "kind": "tpm", "road": "ak"}, map[string]any{"ak": "gce-rsa"}},
		"first-ek": {41, "{nodeName: first-ek, providerID: 'ID'}",
			map[string]any{"ekIssuers": []any{ekIssuer}}, map[string]any{"mode": "FirstUse", "kind": "tpm", "road": "ek", "identityClass": "RSA-2048"}, map[string]any{"ek": "rsa-2048"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := func(n uint64) string { return fmt.Sprintf("gce://example-project/europe-west1-b/vm-%d", n) }
			own, other := id(way.number), id(way.number+1)
			controlplane.Write(t, c.dir, "inventory.yaml", []byte("machines: ["+strings.ReplaceAll(way.inventory, "'ID'", "'"+own+"'")+"]\n"))
			r := c.startController(t, program, name, func(config map[string]any) { config["tpm"], config["membership"] = way.tpm, way.membership })
			r.isReady(t)
			node := func(name string, n uint64) *nodeMachine {
				evidence := maps.Clone(way.evidence)
				evidence["device"] = strings.TrimPrefix(machine(t, n).TCTI(), "swtpm:path=")
				return c.install(t, authenticator, name, nil, func(config map[string]any) { config["evidence"] = map[string]any{"tpm": evidence} })
			}
			thief := name
			if name == "listed" {
				thief = "listed-thief"
			}
			if got := node(thief, way.number+1).refused(t); !strings.Contains(got, "ProviderIdEvidence") || strings.Contains(got, own) {
				t.Errorf("got %s, want ProviderIdEvidence and no ID of the inventory", got)
			}
			lines := slices.DeleteFunc(strings.Split(r.text(t), "\n"), func(line string) bool {
				return !strings.Contains(line, "provider-id-evidence") || !strings.Contains(line, own) || !strings.Contains(line, other)
			})
			if len(lines) == 0 {
				t.Errorf("the log has not both provider IDs:\n%s", r.tail())
			}
			honest := node(name, way.number)
			_, pair := honest.credential(t)
			c.recorded(t, honest.name, pair.Leaf)
			if id := c.providerIDOf(t, honest.name); id != own {
				t.Errorf("the record has provider ID %q, want %q", id, own)
			}
			if status := r.stop(t); status != 0 {
				t.Errorf("status %d; the end of the log:\n%s", status, r.tail())
			}
		})
	}
}
