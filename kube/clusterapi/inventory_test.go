package clusterapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var (
	bootstrap = csr.User{Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"}}
	node      = csr.User{Username: "system:node:node-1", Groups: []string{"system:nodes", "system:authenticated"}}
	recovery  = csr.User{Username: "nodeattest:recovery:node-1", Groups: []string{"nodeattest:recovery", "system:authenticated"}}
)

// question is a request of a user for node-1 that claims a provider ID.
func question(t *testing.T, by csr.User, providerID string) csr.Question {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := testkit.Must(csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{ProviderID: providerID}))
	pem := testkit.Must((&csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte("evidence")}).Marshal())
	return csr.Question{NodeName: "node-1", Request: csr.Filed(&csr.Spec{Request: pem}, by, time.Now())}
}

// recorded are the records of a cluster in which node-1 is the machine of a UID, bound; "" for no record.
func recorded(t *testing.T, uid types.UID) membership.Lookups {
	t.Helper()
	registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: "c", Road: attest.RoadEK, IdentityClass: "RSA-2048"}, membership.RegistryOptions{}))
	if uid != "" {
		claim := membership.Claim{NodeName: "node-1", Machine: "ek:sha256:" + attest.Identity(strings.Repeat("0", 64)), MachineUID: string(uid)}
		record := testkit.Must(registry.Reserve(t.Context(), claim, time.Now().Add(time.Minute)))
		testkit.Must(registry.Bind(t.Context(), record, time.Time{}, nil))
	}
	return registry
}

// fleet is a management cluster with the Cluster and two Machines.
type fleet struct {
	cluster, one, two, oneConfig, twoConfig *unstructured.Unstructured
}

func newFleet(version string) *fleet {
	return &fleet{clusterOf(version, nil), machineOf(version, "one"), machineOf(version, "two"),
		configOf(version, "one", "abcdef"), configOf(version, "two", "uvwxyz")}
}

func (f *fleet) objects() (all []client.Object) {
	for _, o := range []*unstructured.Unstructured{f.cluster, f.one, f.two, f.oneConfig, f.twoConfig} {
		if o != nil {
			all = append(all, o)
		}
	}
	return all
}

// byFile has the Machine one join by discovery.file.
func (f *fleet) byFile(t *testing.T) {
	set(t, f.oneConfig, fields{"file": fields{"kubeConfigPath": "/etc/kubernetes/discovery.conf"}}, discovery...)
	f.one.SetAnnotations(map[string]string{AnnotationIdentity: "ek:sha256:" + strings.Repeat("0", 64)})
}

// deleted marks an object as being deleted.
func deleted(o *unstructured.Unstructured) {
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	o.SetFinalizers([]string{"machine.cluster.x-k8s.io"})
}

// TestMachine finds the Machine of a request, and changes one thing at a time.
func TestMachine(t *testing.T) {
	for name, row := range map[string]struct {
		by      csr.User
		claims  string
		record  types.UID
		change  func(t *testing.T, f *fleet)
		found   string // the Machine's name
		says    string // of csr.ErrNoMachine
		retry   string // says what the operator has to do
		ignored bool
	}{
		"its token":          {by: bootstrap, found: "one"},
		"another token":      {by: csr.User{Username: "system:bootstrap:others", Groups: bootstrap.Groups}, says: "bootstrap token others is of no Machine"},
		"no bootstrap token": {by: csr.User{Username: "kubernetes-admin", Groups: []string{"system:masters"}}, says: "request-username"},
		"a TLS bootstrap token": {by: bootstrap, says: "of no Machine", change: func(t *testing.T, f *fleet) {
			set(t, f.oneConfig, "zzzzzz.0123456789abcdef", append(discovery[:3:3], "tlsBootstrapToken")...)
		}},
		"its TLS bootstrap token": {by: bootstrap, found: "one", change: func(t *testing.T, f *fleet) {
			set(t, f.oneConfig, "zzzzzz.0123456789abcdef", append(discovery[:3:3], "bootstrapToken", "token")...)
			set(t, f.oneConfig, "abcdef.0123456789abcdef", append(discovery[:3:3], "tlsBootstrapToken")...)
		}},
		"a token of two Machines": {by: bootstrap, says: "of two Machines", change: func(t *testing.T, f *fleet) {
			f.twoConfig = configOf(f.two.GroupVersionKind().Version, "two", "abcdef")
		}},
		"a token of two configs, one without a Machine": {by: bootstrap, found: "one", change: func(_ *testing.T, f *fleet) {
			f.twoConfig = configOf(f.two.GroupVersionKind().Version, "two", "abcdef")
			f.two = nil
		}},
		"a token of two Machines, one of another cluster": {by: bootstrap, found: "one", change: func(t *testing.T, f *fleet) {
			f.twoConfig = configOf(f.two.GroupVersionKind().Version, "two", "abcdef")
			f.two.SetLabels(map[string]string{clusterLabel: "other"})
			set(t, f.two, "other", "spec", "clusterName")
		}},
		"another cluster": {by: bootstrap, says: "Machine one of another cluster", change: func(t *testing.T, f *fleet) {
			f.one.SetLabels(map[string]string{clusterLabel: "other"})
			set(t, f.one, "other", "spec", "clusterName")
		}},
		"another cluster's label": {by: bootstrap, says: "another cluster", change: func(_ *testing.T, f *fleet) {
			f.one.SetLabels(map[string]string{clusterLabel: "other"})
		}},
		"another clusterName": {by: bootstrap, says: "another cluster", change: func(t *testing.T, f *fleet) { set(t, f.one, "other", "spec", "clusterName") }},
		"no owner":            {by: bootstrap, says: "controlled by no Machine", change: func(_ *testing.T, f *fleet) { f.oneConfig.SetOwnerReferences(nil) }},
		"an owner of another group": {by: bootstrap, says: "controlled by no Machine", change: func(_ *testing.T, f *fleet) {
			f.oneConfig.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Machine", Name: "one", UID: testUID("one"), Controller: new(true)}})
		}},
		"a pool as its owner, no slots": {by: bootstrap, says: "machines of MachinePools are not admitted", change: func(_ *testing.T, f *fleet) {
			f.oneConfig.SetOwnerReferences(ownedBy("v1beta2", "MachinePool", "one"))
		}},
		"an owner that does not control": {by: bootstrap, says: "controlled by no Machine", change: func(_ *testing.T, f *fleet) {
			owners := ownedBy("v1beta2", "Machine", "one")
			owners[0].Controller = nil
			f.oneConfig.SetOwnerReferences(owners)
		}},
		"another Machine of that name": {by: bootstrap, says: "is not the owner", change: func(_ *testing.T, f *fleet) { f.one.SetUID("uid-of-later") }},
		"an owner that is gone":        {by: bootstrap, says: "Machine one is gone", change: func(_ *testing.T, f *fleet) { f.one = nil }},
		"a Machine with another config": {by: bootstrap, says: "is not the owner", change: func(t *testing.T, f *fleet) {
			set(t, f.one, "two", "spec", "bootstrap", "configRef", "name")
		}},
		"a Machine with another kind of config": {by: bootstrap, says: "is not the owner", change: func(t *testing.T, f *fleet) {
			set(t, f.one, "RKE2Config", "spec", "bootstrap", "configRef", "kind")
		}},
		"a deleted Machine": {by: bootstrap, says: "Machine one is being deleted", change: func(_ *testing.T, f *fleet) { deleted(f.one) }},
		"a deleted config":  {by: bootstrap, says: "being deleted", change: func(_ *testing.T, f *fleet) { deleted(f.oneConfig) }},

		"its record":                     {by: node, record: testUID("one"), found: "one"},
		"its record, as recovery":        {by: recovery, record: testUID("one"), found: "one"},
		"another's record":               {by: node, record: testUID("two"), found: "two"},
		"no record":                      {by: node, says: "has no record"},
		"a record of a gone Machine":     {by: node, record: "uid-of-gone", says: "no Machine has the UID"},
		"a record, the Machine drains":   {by: node, record: testUID("one"), found: "one", change: func(_ *testing.T, f *fleet) { deleted(f.one) }},
		"a record, of another cluster":   {by: node, record: testUID("one"), says: "another cluster", change: func(_ *testing.T, f *fleet) { f.one.SetLabels(nil) }},
		"a record of an earlier Machine": {by: node, record: testUID("one"), says: "no Machine has the UID", change: func(_ *testing.T, f *fleet) { f.one.SetUID("uid-of-later") }},

		"by file":               {by: bootstrap, claims: "metal://one", found: "one", change: func(t *testing.T, f *fleet) { f.byFile(t) }},
		"by file, no claim":     {by: bootstrap, says: "claims no provider ID", change: func(t *testing.T, f *fleet) { f.byFile(t) }},
		"by file, another's":    {by: bootstrap, claims: "metal://two", says: "has no annotation", change: func(t *testing.T, f *fleet) { f.byFile(t) }},
		"by file, no Machine's": {by: bootstrap, claims: "metal://three", says: "0 Machines have provider ID", change: func(t *testing.T, f *fleet) { f.byFile(t) }},
		"by file, two have it": {by: bootstrap, claims: "metal://one", says: "2 Machines have provider ID", change: func(t *testing.T, f *fleet) {
			f.byFile(t)
			set(t, f.two, "metal://one", "spec", "providerID")
		}},
		"by file, no identity": {by: bootstrap, claims: "metal://one", says: "has no annotation", change: func(t *testing.T, f *fleet) {
			f.byFile(t)
			f.one.SetAnnotations(nil)
		}},
		"by file, without a file": {by: bootstrap, claims: "metal://one", says: "is not that of KubeadmConfig one", change: func(t *testing.T, f *fleet) {
			f.byFile(t)
			set(t, f.oneConfig, fields{}, discovery...)
		}},
		"by file, with a token of its own": {by: bootstrap, claims: "metal://one", says: "is not that of KubeadmConfig one", change: func(t *testing.T, f *fleet) {
			f.byFile(t)
			set(t, f.oneConfig, "zzzzzz.0123456789abcdef", append(discovery[:3:3], "tlsBootstrapToken")...)
		}},

		"authentication: true": {by: bootstrap, found: "one", change: func(_ *testing.T, f *fleet) {
			f.cluster.SetAnnotations(map[string]string{AnnotationAuthentication: "true"})
		}},
		"authentication: false": {by: bootstrap, ignored: true, change: func(_ *testing.T, f *fleet) {
			f.cluster.SetAnnotations(map[string]string{AnnotationAuthentication: "false"})
		}},
		"authentication: no": {by: bootstrap, retry: `"true" or "false"`, change: func(_ *testing.T, f *fleet) {
			f.cluster.SetAnnotations(map[string]string{AnnotationAuthentication: "no"})
		}},
		"no Cluster": {by: bootstrap, retry: "no Cluster fleet/work", change: func(_ *testing.T, f *fleet) { f.cluster = nil }},
		"an authorized kind": {by: bootstrap, found: "one", change: func(_ *testing.T, f *fleet) {
			f.cluster.SetAnnotations(map[string]string{AnnotationAttestors: "gce, tpm"})
			f.one.SetAnnotations(map[string]string{AnnotationKind: "tpm"})
		}},
		"a kind that is not authorized": {by: bootstrap, says: "Cluster work authorizes", change: func(_ *testing.T, f *fleet) {
			f.cluster.SetAnnotations(map[string]string{AnnotationAttestors: "gce,tpm2"})
			f.one.SetAnnotations(map[string]string{AnnotationKind: "tpm"})
		}},
		"no kind is authorized": {by: bootstrap, says: "Cluster work authorizes", change: func(_ *testing.T, f *fleet) {
			f.cluster.SetAnnotations(map[string]string{AnnotationAttestors: ""})
			f.one.SetAnnotations(map[string]string{AnnotationKind: "tpm"})
		}},
		"no evidence, not authorized": {by: bootstrap, says: "Cluster work authorizes", change: func(_ *testing.T, f *fleet) {
			f.cluster.SetAnnotations(map[string]string{AnnotationAttestors: "tpm"})
			f.one.SetAnnotations(map[string]string{AnnotationEvidence: "none"})
		}},
		"evidence: maybe": {by: bootstrap, retry: AnnotationEvidence, change: func(_ *testing.T, f *fleet) {
			f.one.SetAnnotations(map[string]string{AnnotationEvidence: "maybe"})
		}},
		"evidence: none, with an identity": {by: bootstrap, retry: AnnotationIdentity, change: func(_ *testing.T, f *fleet) {
			f.one.SetAnnotations(map[string]string{AnnotationEvidence: "none", AnnotationIdentity: "ek:sha256:0"})
		}},
		"evidence: none, with a kind": {by: bootstrap, retry: AnnotationKind, change: func(_ *testing.T, f *fleet) {
			f.one.SetAnnotations(map[string]string{AnnotationEvidence: "none", AnnotationKind: "tpm"})
		}},
		"a kind for no evidence": {by: bootstrap, retry: AnnotationEvidence, change: func(_ *testing.T, f *fleet) {
			f.one.SetAnnotations(map[string]string{AnnotationKind: "insecure"})
		}},
		"a provider ID that cannot be one": {by: bootstrap, retry: "Machine one", change: func(t *testing.T, f *fleet) { set(t, f.one, "one", "spec", "providerID") }},
	} {
		for _, version := range versions {
			t.Run(name+"/"+version, func(t *testing.T) {
				f := newFleet(version)
				if row.change != nil {
					row.change(t, f)
				}
				i := newInventory(t, version, recorded(t, row.record), f.objects(), nil)
				m, err := i.Machine(t.Context(), question(t, row.by, row.claims))
				switch {
				case row.found != "" && (err != nil || m.Name != namespace+"/"+row.found || m.UID != string(testUID(row.found))):
					t.Errorf("got %+v, %v, want Machine %s", m, err, row.found)
				case row.says != "" && (!errors.Is(err, csr.ErrNoMachine) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), row.says)):
					t.Errorf("got %+v, %v, want no Machine, and %q", m, err, row.says)
				case row.retry != "" && (!errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), row.retry)):
					t.Errorf("got %+v, %v, want a retry that says %q", m, err, row.retry)
				case row.ignored && csr.Decide(err).Verdict != csr.VerdictIgnore:
					t.Errorf("got %+v, %v, want a request that is left alone", m, err)
				}
			})
		}
	}
}

// TestMachineSays reads every field of a Machine.
func TestMachineSays(t *testing.T) {
	for _, version := range versions {
		f := newFleet(version)
		f.one.SetAnnotations(map[string]string{AnnotationIdentity: "ek:sha256:" + strings.Repeat("0", 64), AnnotationKind: "tpm"})
		set(t, f.one, []any{
			fields{"type": "InternalDNS", "address": "one.example.com."}, fields{"type": "Hostname", "address": "one"},
			fields{"type": "InternalIP", "address": "192.0.2.1"}, fields{"type": "ExternalIP", "address": "2001:db8::1"}, fields{"address": ""},
		}, "status", "addresses")
		i := newInventory(t, version, recorded(t, ""), f.objects(), nil)
		want := &csr.Machine{Name: "fleet/one", UID: "uid-of-one", Identity: "ek:sha256:" + strings.Repeat("0", 64), Provider: "tpm", ProviderID: "metal://one",
			DNSNames: []string{"one.example.com", "one"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, BootstrapReady: true}
		got := testkit.Must(i.Machine(t.Context(), question(t, bootstrap, "")))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", version, got, want)
		}

		f.one.SetAnnotations(map[string]string{AnnotationEvidence: "none"})
		unstructured.RemoveNestedField(f.one.Object, "spec", "bootstrap", "dataSecretName")
		unstructured.RemoveNestedField(f.one.Object, "spec", "providerID")
		want = &csr.Machine{Name: "fleet/one", UID: "uid-of-one", Provider: "insecure"}
		got = testkit.Must(newInventory(t, version, recorded(t, ""), f.objects(), nil).Machine(t.Context(), question(t, bootstrap, "")))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", version, got, want)
		}
	}
}

// TestBehindCache has objects that the cache does not have yet: the API server is asked, a few
// times in a row, and then the request is retried.
func TestBehindCache(t *testing.T) {
	f := newFleet("v1beta2")
	i := newInventory(t, "v1beta2", recorded(t, testUID("one")), f.objects(), []client.Object{f.cluster})
	for _, by := range []csr.User{bootstrap, node, bootstrap, node, bootstrap} {
		if m, err := i.Machine(t.Context(), question(t, by, "")); err != nil || m.Name != "fleet/one" {
			t.Errorf("%s: got %+v, %v", by.Username, m, err)
		}
	}
	if m, err := i.Machine(t.Context(), question(t, bootstrap, "")); !errors.Is(err, refusal.ErrRetry) || errors.Is(err, csr.ErrNoMachine) {
		t.Errorf("got %+v, %v, want a retry", m, err)
	}
	known := newInventory(t, "v1beta2", recorded(t, ""), f.objects(), nil)
	for range 2 * listBurst {
		testkit.Must(known.Machine(t.Context(), question(t, bootstrap, "")))
	}
}

// TestLean has the cache keep no secret of a KubeadmConfig.
func TestLean(t *testing.T) {
	for _, version := range versions {
		o := configOf(version, "one", "abcdef")
		o.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "0123456789abcdef"})
		kept := testkit.Must(lean(o)).(*unstructured.Unstructured)
		text := string(testkit.Must(kept.MarshalJSON()))
		if strings.Contains(text, "0123456789abcdef") || strings.Contains(text, "password") {
			t.Errorf("%s: the cache has %s", version, text)
		}
		if tokenID(kept.Object) != "abcdef" || kept.GetUID() != testUID("one") || metav1.GetControllerOf(kept) == nil {
			t.Errorf("%s: the cache has %s", version, text)
		}
		again := testkit.Must(lean(kept.DeepCopy())).(*unstructured.Unstructured)
		if !reflect.DeepEqual(again, kept) {
			t.Errorf("%s: once more, it is another: %+v, before %+v", version, again, kept)
		}
	}
	for _, o := range []any{nil, "text", &unstructured.Unstructured{Object: fields{"kind": "KubeadmConfig", "spec": "text", "metadata": fields{}}}} {
		if _, err := lean(o); err != nil {
			t.Errorf("%v: %v", o, err)
		}
	}
}
