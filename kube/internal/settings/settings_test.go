package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/refusal"
)

func shipped(t testing.TB) string {
	t.Helper()
	manifests := testkit.Must(deploy.Manifests("config.yaml"))
	return string(manifests[0])
}

// TestShipped checks that the file which documents the settings is one, and has the
// defaults.
func TestShipped(t *testing.T) {
	s := testkit.Must(Parse([]byte(shipped(t))))
	bare, err := Parse([]byte("apiVersion: config.nodeattest.github.io/v1alpha1\nkind: NodeAttestation\n" +
		"tpm: {allowedEKs: ['ek:sha256:00']}\ninventory: {file: f}\nmembership: {mode: Inventory, road: ek}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Signers.MaxLifetime != bare.Signers.MaxLifetime || s.Controller.HealthAddress != bare.Controller.HealthAddress ||
		s.Controller.MetricsAddress != bare.Controller.MetricsAddress || s.Cluster.Namespace != bare.Cluster.Namespace ||
		s.Cluster.KeyRingSecret != bare.Cluster.KeyRingSecret || s.Signer.HealthAddress != bare.Signer.HealthAddress ||
		strings.Join(s.Signers.Names, " ") != strings.Join(bare.Signers.Names, " ") {
		t.Errorf("shipped %+v, defaults %+v", s, bare)
	}
}

// TestParse tries bad files.
func TestParse(t *testing.T) {
	good := shipped(t)
	for name, row := range map[string]struct{ old, with, want string }{
		"an unknown field":                  {"\nsigners:\n", "\nsigners:\n  foo: 1\n", "foo"},
		"a field twice":                     {"\nsigners:\n", "\nsigners:\n  maxLifetime: 1h\n", "maxLifetime"},
		"an upper-case field":               {"  mode:", "  Mode:", "Mode"},
		"two documents":                     {"\ninventory:", "\n---\ninventory:", "more than one document"},
		"another kind":                      {"kind: NodeAttestation", "kind: Other", "Other"},
		"another version":                   {"v1alpha1", "v1", "v1"},
		"the group of the custom resources": {"config.nodeattest.github.io", "nodeattest.github.io", "write apiVersion: config.nodeattest.github.io/v1alpha1"},
		"an unknown kind of evidence":       {"\ninventory:", "\nrack: {}\ninventory:", "rack"},
		"an unknown mode":                   {"mode: Inventory", "mode: Everything", "Everything"},
		"no mode":                           {"mode: Inventory", "mode: ''", "membership.mode"},
		"an unknown road":                   {"road: ek", "road: document", "document"},
		"nothing to trust":                  {"    - rootsFile: /etc/nodeattest/ek-roots.pem\n      profile: tcg\n", "    []\n", "one kind of evidence"},
		"kubelet-serving":                   {"    - kubernetes.io/kube-apiserver-client-kubelet", "    - kubernetes.io/kubelet-serving", "builtInDuration"},
		"a duration of seconds":             {"maxLifetime: 24h", "maxLifetime: 1s", "maxLifetime"},
		"a recovery of 91 days":             {"maxLifetime: 24h", "maxLifetime: 24h\n  maxRecoveryLifetime: 2184h", "signers.maxRecoveryLifetime"},
		"a lifetime no request can have":    {"maxLifetime: 24h", "maxLifetime: 5m", "signers.maxLifetime 5m0s, want 10m0s or more"},
		"a built-in one like that":          {"builtInDuration: 0s", "builtInDuration: 9m59s", "signers.builtInDuration 9m59s, want 0, or 10m0s to 12h0m0s, half"},
		"a shorter recovery":                {"maxLifetime: 24h", "maxLifetime: 24h\n  maxRecoveryLifetime: 23h", "maxRecoveryLifetime"},
		"a negative built-in one":           {"builtInDuration: 0s", "builtInDuration: -1ns", "builtInDuration"},
		"a duration of no unit":             {"maxLifetime: 24h", "maxLifetime: 24", "signers.maxLifetime: "},
		"a duration of a day":               {"maxLifetime: 24h", "maxLifetime: 1d", "signers.maxLifetime: "},
		"a network with half an address":    {"reservedIPs: []", "reservedIPs: ['10.0.0.0/8', '2001:db8:2403:3/64']", "signers.reservedIPs[1]: "},
		"a long built-in one":               {"builtInDuration: 0s", "builtInDuration: 12h0m1s", "12h0m0s, half"},
		"an inventory nowhere":              {"  file: /etc/nodeattest/inventory.yaml", "  file: ''", "inventory.file"},
		"a restore some day":                {"  # restoredAt:", "  restoredAt: yesterday", "yesterday"},
		"a provider ID in words":            {"requireProviderID: false", "requireProviderID: 'yes'", "requireProviderID"},
		"a network of no kind":              {"reservedIPs: []", "reservedIPs: [10.0.0.0/33]", "33"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Count(good, row.old) != 1 && row.old != "v1alpha1" {
				t.Fatalf("%q is there %d times", row.old, strings.Count(good, row.old))
			}
			if _, err := Parse([]byte(strings.Replace(good, row.old, row.with, 1))); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error with %q", err, row.want)
			}
		})
	}
	s, err := Parse([]byte(strings.Replace(good, "  # restoredAt:", "  restoredAt: 2026-01-31T12:00:00Z", 1)))
	if err != nil || !s.Membership.RestoredAt.Equal(&metav1.Time{Time: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}) {
		t.Errorf("restored at %v, %v", s, err)
	}
	for _, change := range [][]string{{"maxLifetime: 24h", "maxLifetime: 10m"}, {"builtInDuration: 0s", "builtInDuration: 12h"}, {"builtInDuration: 0s", "builtInDuration: 10m"},
		{"builtInDuration: 0s", "builtInDuration: 4h48m", "kubernetes.io/kube-apiserver-client-kubelet\n", "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm\n"}} {
		s, err := Parse([]byte(strings.NewReplacer(change...).Replace(good)))
		if err == nil {
			err = s.Policy([]string{"cluster-1"}, new(Machines).Machine).Validate()
		}
		if err != nil {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	long := strings.NewReplacer("builtInDuration: 0s", "builtInDuration: 4h48m1s", "kubernetes.io/kube-apiserver-client-kubelet\n", "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm\n").Replace(good)
	if _, err := Parse([]byte(long)); !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), "4h48m0s, half") {
		t.Errorf("a long built-in one, and client certificates of ours: %v", err)
	}
	if _, err := Parse(nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// known are settings that name machines' kind as tpm.
func known(t testing.TB) *Settings {
	t.Helper()
	s := testkit.Must(Parse([]byte(shipped(t))))
	return s
}

func FuzzParse(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(shipped(f)))
	f.Add([]byte("apiVersion: 1\n"))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := Parse(text); err == nil && (len(s.Signers.Names) == 0 || s.Membership.Mode == "") {
			t.Errorf("incomplete: %+v", s)
		}
	})
}

func FuzzParseInventory(f *testing.F) {
	f.Add([]byte("machines:\n- nodeName: node-1\n  uid: u\n  providerID: p://1\n  dnsNames: [node-1]\n  ipAddresses: [192.0.2.1]\n"))
	f.Add([]byte("machines: [{nodeName: a}, {nodeName: a}]"))
	byTPM := known(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		machines, err := byTPM.ParseInventory(text)
		for name, m := range machines {
			if err == nil && (m.NodeName != name || m.UID == "" || !m.BootstrapReady) {
				t.Errorf("%s: %+v", name, m)
			}
		}
	})
}

func TestParseInventory(t *testing.T) {
	digest := "ek:sha256:" + strings.Repeat("0a", 32)
	byTPM := known(t)
	machines, err := byTPM.ParseInventory([]byte("machines:\n- nodeName: node-1\n  identity: " + digest + "\n- nodeName: node-2\n  uid: u2\n  ipAddresses: [192.0.2.1]\n"))
	if err != nil || len(machines) != 2 || machines["node-1"].Identity != digest || machines["node-1"].UID != "inventory:node-1" || machines["node-2"].UID != "u2" {
		t.Errorf("got %+v, %v", machines, err)
	}
	if machines, err = byTPM.ParseInventory([]byte("--- # machines\nmachines:\n- nodeName: node-1\n...\n")); err != nil || len(machines) != 1 {
		t.Errorf("in a document that begins and ends: %+v, %v", machines, err)
	}
	for name, text := range map[string]string{
		"names in capitals":             "machines: [{nodeName: node-1, dnsNames: [Node-1, Node-1.EXAMPLE]}]",
		"machines without provider IDs": "machines: [{nodeName: a, providerID: none}, {nodeName: b, providerID: none}, {nodeName: c, providerID: 'vsphere://4228e784-3f9e-998e-311b-29a25ad112d3'}, {nodeName: d, providerID: 'metal3://ns/host/machine'}]",
		"provider IDs that have case":   "machines: [{nodeName: a, providerID: 'aws:///z/I'}, {nodeName: b, providerID: 'aws:///z/i'}, {nodeName: c}, {nodeName: d}]",
		"an address of two":             "machines: [{nodeName: a, ipAddresses: [192.0.2.1]}, {nodeName: b, ipAddresses: [192.0.2.1]}]", // which moves between them
	} {
		if machines, err := byTPM.ParseInventory([]byte(text)); err != nil {
			t.Errorf("%s: %+v, %v", name, machines, err)
		}
	}
	for name, text := range map[string]string{
		"a name twice":                           "machines: [{nodeName: a}, {nodeName: a}]",
		"a UID twice":                            "machines: [{nodeName: a, uid: u}, {nodeName: b, uid: u}]",
		"an identity twice":                      "machines: [{nodeName: a, identity: '" + digest + "'}, {nodeName: b, identity: '" + digest + "'}]",
		"a provider ID twice":                    "machines: [{nodeName: a, providerID: 'p://1'}, {nodeName: b, providerID: 'p://1'}]",
		"an instance of AWS twice":               "machines: [{nodeName: a, providerID: 'aws:////i-1'}, {nodeName: b, providerID: 'aws://eu-west-1a/i-1'}]",
		"a provider ID of no machine":            "machines: [{nodeName: a, providerID: 'vsphere://'}]",
		"one of slashes":                         "machines: [{nodeName: a, providerID: 'openstack:///'}]",
		"one without a scheme":                   "machines: [{nodeName: a, providerID: metal}]",
		"a provider ID twice, another's between": "machines: [{nodeName: a, providerID: 'p://x'}, {nodeName: c, providerID: 'p://X'}, {nodeName: b, providerID: 'p://x'}]",
		"twice, of Azure":                        "machines: [{nodeName: a, providerID: 'azure:///subscriptions/S'}, {nodeName: b, providerID: 'azure:///Subscriptions/s'}]",
		"another node's name":                    "machines: [{nodeName: a, dnsNames: [B]}, {nodeName: b}]",
		"no name":                                "machines: [{uid: u}]",
		"an upper-case name":                     "machines: [{nodeName: Node}]",
		"an identity of none":                    "machines: [{nodeName: a, identity: 'ek:sha256:00'}]",
		"an address of none":                     "machines: [{nodeName: a, ipAddresses: ['1']}]",
		"an unknown field":                       "machines: [{nodeName: a, dnsName: a}]",
		"a list at the top":                      "[]",
		"two documents of one":                   "machines: []\n---\nmachines: []\n",
	} {
		t.Run(name, func(t *testing.T) {
			if machines, err := byTPM.ParseInventory([]byte(text)); err == nil {
				t.Errorf("%s: accepted as %+v", name, machines)
			}
		})
	}
}

// TestInventoryUID gives the machines with the longest names UIDs of their own.
func TestInventoryUID(t *testing.T) {
	byTPM := known(t)
	for _, n := range []int{243, 244, 253} {
		name := strings.Repeat("a", n-1)
		machines, err := byTPM.ParseInventory([]byte("machines: [{nodeName: " + name + "b}, {nodeName: " + name + "c}]"))
		if err != nil || len(machines) != 2 || machines[name+"b"].UID == machines[name+"c"].UID {
			t.Errorf("%d bytes: %d machines, %.100v", n, len(machines), err)
		} else if uid := machines[name+"b"].UID; n == 243 && uid != "inventory:"+name+"b" {
			t.Errorf("the UID of a record there may be is %s now", uid)
		}
	}
}

// TestInventoryErrors has an error say which of thousands of machines it is about.
func TestInventoryErrors(t *testing.T) {
	byTPM := known(t)
	for _, entry := range []string{"nodeName: 666", "nodeName: no", "nodeName: b, uid: 12345678", "nodeName: b, ipAddresses: [192.0.2.1/24]", "nodeName: b, dnsNames: [666]",
		"nodeName: b, ipAddresses: 192.0.2.1", "nodeName: B", "nodeName: b, providerID: ' '", `nodeName: b, uid: "a\a"`, "nodeName: b, uid: " + strings.Repeat("u", 254), "nodeName: b, providerID: ' x'",
		"nodeName: b, dnsNames: [b.example.]", "nodeName: b, dnsNames: ['*.example']", "nodeName: b, dnsNames: ['']", "nodeName: b, dnsNames: [kubernetes]",
		"nodeName: b, dnsNames: ['666']", "nodeName: b, ipAddresses: ['fe80::1%eth0']", "nodeName: b, ipAddresses: [127.0.0.1]",
		"nodeName: b, kind: c", "nodeName: a", "nodename: b"} {
		if _, err := byTPM.ParseInventory([]byte("machines: [{nodeName: a}, {" + entry + "}]")); err == nil || !strings.Contains(err.Error(), "machines[1]") {
			t.Errorf("{%s}: %v", entry, err)
		}
	}
}

// TestInventoryReserved: no machine may have a reserved name or address.
func TestInventoryReserved(t *testing.T) {
	s := testkit.Must(Parse([]byte(strings.Replace(shipped(t), "reservedIPs: []", "reservedIPs: [10.96.0.0/12]", 1))))
	s.Signers.ReservedDNSNames = []string{".Corp.example"}
	for entry, want := range map[string]string{"ipAddresses: [10.111.0.1]": "10.111.0.1", "dnsNames: [a.corp.example]": "a.corp.example",
		"ipAddresses: [10.112.0.1], dnsNames: [corp.example]": ""} {
		_, err := s.ParseInventory([]byte("machines: [{nodeName: a, " + entry + "}]"))
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// TestFollow checks that the inventory follows its file, and stays while that is broken or was
// emptied, unless it says that there are no machines.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inventory.yaml")
	write := func(text string) {
		t.Helper()
		testkit.MustDo(os.WriteFile(path, []byte(text), 0o600))
	}
	write("machines: [{nodeName: a}]")
	m := testkit.Must((&Settings{Inventory: Inventory{File: path}, Membership: Membership{Kind: "tpm"}}).OpenInventory())
	has := func(name string, want error) {
		t.Helper()
		if _, err := m.Machine(t.Context(), csr.Question{NodeName: name}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	reads := func(changed bool) {
		t.Helper()
		if m.read() != changed {
			t.Errorf("read: %t, want %t", !changed, changed)
		}
	}
	has("a", nil)
	has("b", csr.ErrNoMachine)
	write("machines: [{nodeName: b}, ]")
	has("a", nil)
	reads(true)
	has("a", csr.ErrNoMachine)
	has("b", nil)
	for _, text := range []string{"machines: [{nodeName: ", "", "\n", "# nothing\n", "null\n", "---\n", "machines:\n", "machines: null\n", "{}\n"} {
		write(text)
		if reads(true); len(m.listed.Load().Problems()) != 1 {
			t.Errorf("%q was read", text)
		}
		has("b", nil)
		has("a", refusal.ErrRetry) // which the file may say next
	}
	reads(false)
	write("machines: []\n")
	reads(true)
	has("b", csr.ErrNoMachine)
}

// TestPolicyCluster has the policy be that of the cluster of the file, by its IDs or its CA.
func TestPolicyCluster(t *testing.T) {
	w := newWorld(t)
	root := testkit.Must(attest.ClusterID(w.vendor.Root()))
	bundle := testkit.Must(os.ReadFile(filepath.Join(w.dir, "ak.pem")))
	for name, text := range map[string]string{"commented.pem": "# kubernetes-ca\n" + string(bundle) + "\nsubject=CN=x\n", "twice.pem": string(bundle) + string(bundle), "none.pem": "# kubernetes-ca\n"} {
		testkit.MustDo(os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
	}
	if s, err := w.settings("ids: [c]", "caFile: @/none.pem"); err != nil {
		t.Fatal(err)
	} else if ids, err := s.ClusterIDs(); err == nil {
		t.Errorf("a file without certificates: %q", ids)
	}
	// As kube-apiserver and kubelets read the same file: with text around the certificates.
	for text, want := range map[string]string{"ids: [c]": "c", "caFile: @/ak.pem": root, "caFile: @/commented.pem": root, "caFile: @/twice.pem": root} {
		s := testkit.Must(w.settings("ids: [c]", text))
		ids := testkit.Must(s.ClusterIDs())
		p := s.Policy(ids, new(Machines).Machine)
		if err := p.Validate(); err != nil || !slices.Equal(p.ClusterIDs, []string{want}) {
			t.Errorf("%s: %q, %v, want %s", text, p.ClusterIDs, err, want)
		}
		if err := s.Policy(nil, new(Machines).Machine).Validate(); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("of no cluster: %v", err)
		}
	}
}

// TestPolicyProviderIDs: nodes are asked for provider IDs if the file says so, and kubelets' own requests never.
func TestPolicyProviderIDs(t *testing.T) {
	s := known(t)
	for _, require := range []bool{false, true} {
		s.Signers.RequireProviderID = require
		for _, signers := range [][]string{nil, {csr.SignerClientTPM, csr.SignerServingTPM}, {csr.SignerKubeletServing}} {
			want := require && !slices.Contains(signers, csr.SignerKubeletServing)
			if p := s.Policy(nil, new(Machines).Machine, signers...); p.RequireProviderID != want {
				t.Errorf("requireProviderID %t, signers %v: %t", require, signers, p.RequireProviderID)
			}
		}
	}
}

// TestPolicyLifetimes has the cap on requests be that of Kubernetes' own signers alone: the
// API takes no request for less than 10 minutes, which our own signers cut.
func TestPolicyLifetimes(t *testing.T) {
	short := func(lifetime string) (*Settings, error) {
		return Parse([]byte(strings.NewReplacer("maxLifetime: 24h", "maxLifetime: "+lifetime, csr.SignerKubeAPIServerClientKubelet+"\n", csr.SignerClientTPM+"\n").Replace(shipped(t))))
	}
	if _, err := short("59.999999999s"); err == nil || !strings.Contains(err.Error(), "signers.maxLifetime 59.999999999s, want 1m0s or more") {
		t.Errorf("under a minute: %v", err)
	}
	s := testkit.Must(short("1m"))
	if p := s.Policy(nil, new(Machines).Machine, csr.SignerClientTPM, csr.SignerServingTPM); p.MaxLifetime != 0 {
		t.Errorf("our own signers: at most %s is asked for", p.MaxLifetime)
	}
	for _, signers := range [][]string{{csr.SignerClientTPM, csr.SignerKubeAPIServerClientKubelet}, {csr.SignerKubeletServing}} {
		if p := s.Policy(nil, new(Machines).Machine, signers...); p.MaxLifetime != s.Signers.MaxLifetime.Duration {
			t.Errorf("%v: at most %s is asked for", signers, p.MaxLifetime)
		}
	}
}
