package kube

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// lie is a request of a client that lies in one thing.
type lie struct {
	name    string
	checks  []string // one of these refuses it
	request *csr.Request
	as      *requester // nil means the usual requester of the request's user
	why     string     // what the controller's log also says of it
	// The outcome: the API server's refusal to store it, or the stored object.
	refused error
	object  *certificatesv1.CertificateSigningRequest
}

// liars are a cluster whose controller decides about what package forge makes, with keys in
// software. The controller's challenge key is known to them, so that everything fits but the lie.
type liars struct {
	*cluster
	bench      *forge.Bench
	road       attest.Road
	requesters map[string]*requester // by user
	tokens     map[string]string     // the IDs of bootstrap tokens, by their extra groups
}

// TestRefusals files every request that package forge can make, one for each fault, and has the shipped
// controller deny each for its own reason. The good requests behind them are admitted. Each requester has a
// credential of its own: a bootstrap token, a service account's token or a certificate of the cluster's CA.
// The node uses the certificate that it joined with.
func TestRefusals(t *testing.T) {
	t.Parallel()
	controllerProgram, signerProgram := buildProgram(t, "node-attestation-controller"), buildProgram(t, "node-attestation-signer")
	l := newLiars(t)
	rows, met, unstored := 0, map[string]int{}, map[string]bool{}
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		l.take(t, road)
		running := []*replica{l.startController(t, controllerProgram, "controller-"+road.String(), l.configure),
			l.startProgram(t, signerProgram, "signer-"+road.String(), "signer", l.configure)}
		for _, r := range running {
			r.isReady(t)
		}
		l.joins(t)
		lies := l.evidence(t)
		if road == attest.RoadAK {
			lies = append(lies, &lie{name: "no-provider-id", checks: []string{string(oid.CheckProviderIDMissing)},
				request: l.asked(t, forge.MachineOne, l.bench.BootstrapAsks, func(a *forge.Asked) { a.Extensions = nil })})
		} else { // the others are the same on each road
			lies = slices.Concat(lies, l.requests(t), l.texts(t), l.others(t))
		}
		began := time.Now()
		l.file(t, lies)
		l.decided(t, lies)
		t.Logf("road %s: %d requests of %d requesters, in %s", road, len(lies), len(l.requesters), time.Since(began).Round(time.Millisecond))
		for _, each := range lies {
			if each.refused != nil {
				unstored[each.name] = true
			}
			each.judge(t, met)
			each.logged(t, running[0])
		}
		l.admitted(t)
		stop(t, running)
		rows += len(lies)
	}
	if names := slices.Sorted(maps.Keys(unstored)); !slices.Equal(names, notStored) {
		t.Errorf("kube-apiserver does not store %q, want %q", names, notStored)
	}
	for _, check := range slices.Concat(csr.PolicyChecks()) {
		if name := string(check); (met[name] == 0) == (unmet[name] == "") {
			t.Errorf("%s refused %d requests, and that it does not is said with %q", name, met[name], unmet[name])
		}
	}
	t.Logf("%d rows, %d checks, %d not stored: %s", rows, len(met), len(unstored), strings.Join(slices.Sorted(maps.Keys(met)), " "))
}

// notStored are the lies that kube-apiserver refuses itself.
var notStored = []string{"attributes-missing", "block-new-certificate-request", "block-request-not-first", "expiration-too-short",
	"extension-critical-one", "extension-identifier-padded", "info-with-long-length", "key-compressed-point", "key-point-off-the-curve",
	"provider-id-twice", "provider-ids-differ", "request-empty-sequence", "request-missing", "request-signature-with-unused-bits",
	"request-trailing-bytes", "request-truncated", "request-version-padded", "request-with-huge-length", "request-with-indefinite-length",
	"request-with-long-length", "self-signature", "signature-algorithm-of-another-key", "signature-algorithm-sha1",
	"signer-with-the-proposals-spelling", "subject-text-not-utf8", "usage-twice"}

// unmet are the checks of the policy that no request can break here, and why.
var unmet = map[string]string{
	"request-closed":    "such a request is left as it is",
	"flag":              "no program has an identifier for it",
	"machine-not-ready": unfiled["machine-not-ready"], "machine-other-node": unfiled["machine-of-another-node"],
}

// newLiars starts the cluster, and has the controller find the liars' challenge keys.
func newLiars(t *testing.T) *liars {
	t.Helper()
	l := &liars{cluster: startCluster(t), tokens: map[string]string{"": attesttest.TokenID}}
	l.prepare(t)
	l.apply(t, "serving/rbac.yaml")
	l.apply(t, "signer/rbac.yaml")
	l.binds(t, "everybody-files", "system:node-bootstrapper", group("system:authenticated"))
	clusterID := l.clusterID(t)
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, l.dir, "ek-roots.pem", controlplane.CertificatePEM(ca.Root()))
	controlplane.Write(t, l.dir, "signer.key", controlplane.PrivatePEM(t, l.ca.Key))
	l.bench = &forge.Bench{Now: time.Now(), ClusterID: clusterID, ProviderID: attesttest.ProviderID, Bootstrap: csr.BootstrapUserPrefix + attesttest.TokenID, CA: ca}
	l.bench.MakeKeys(nil)
	l.bench.MakeMachines()
	keys, err := attest.MarshalRingKeys([]attest.RingKey{l.bench.Ring, l.bench.Retired})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.admin.Update(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "challenge-keys"}, Data: keys}); err != nil {
		t.Fatal(err)
	}
	return l
}

// take puts the machines into the inventory by their identities on a road, and no other machine.
func (l *liars) take(t *testing.T, road attest.Road) {
	t.Helper()
	identity := forge.Identity
	if road == attest.RoadEK {
		identity = func(machine string) string { return l.bench.Machines[machine].EK.Identity() }
	}
	l.road, l.requesters = road, map[string]*requester{}
	l.clear(t)
	controlplane.Write(t, l.dir, "inventory.yaml", fmt.Appendf(nil, `machines:
- {nodeName: %s, identity: %q, providerID: %q, dnsNames: [node-1.example.com], ipAddresses: [192.0.2.1]}
- {nodeName: %s, identity: %q}
`, forge.NodeName, identity(forge.MachineOne), attesttest.ProviderID, forge.OtherNode, identity(forge.MachineTwo)))
}

// configure opens both roads and all signers.
func (l *liars) configure(config map[string]any) {
	trusted, members := config["tpm"].(map[string]any), config["membership"].(map[string]any)
	trusted["akIssuers"], trusted["requireResident"] = trusted["ekIssuers"], true
	members["road"], members["identityClass"] = l.road.String(), ""
	if l.road == attest.RoadEK {
		members["identityClass"] = "P-256"
	}
	config["signers"] = map[string]any{"names": []any{csr.SignerKubeAPIServerClientKubelet, csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM},
		"builtInDuration": "1h", "reservedIPs": []any{"10.96.0.0/16"}, "reservedDNSNames": []any{"api.example.com"},
		"requireProviderID": l.road == attest.RoadAK} // on the other road, attacks also omit it
	ca := config["signer"].(map[string]any)
	ca["certificateFile"], ca["keyFile"] = filepath.Join(l.dir, "ca.crt"), filepath.Join(l.dir, "signer.key")
	limits := config["controller"].(map[string]any) // most come as one user
	limits["requesterRate"], limits["requesterBurst"] = 10000, 10000
}

// file files the pending lies, some at a time.
func (l *liars) file(t *testing.T, lies []*lie) {
	t.Helper()
	work := make(chan func())
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for create := range work {
				create()
			}
		})
	}
	for _, each := range lies {
		if each.object != nil {
			continue
		}
		as, object := cmp.Or(each.as, l.as(t, each.request.User)), requestOf(&each.request.Spec)
		object.Annotations = each.request.Metadata.Annotations
		work <- func() {
			if each.refused = as.Create(context.Background(), object); each.refused == nil {
				as.filed(t, object)
				each.object = object
			}
		}
	}
	close(work)
	done.Wait()
}

// decided waits until the controller has decided about all that it is asked about.
func (l *liars) decided(t *testing.T, lies []*lie) {
	t.Helper()
	eventually(t, func() error {
		var all certificatesv1.CertificateSigningRequestList
		if err := l.admin.List(t.Context(), &all); err != nil {
			return err
		}
		now := map[string]*certificatesv1.CertificateSigningRequest{}
		for i := range all.Items {
			now[all.Items[i].Name] = &all.Items[i]
		}
		for _, each := range lies {
			if each.object == nil {
				continue
			}
			if each.object = now[each.object.Name]; len(each.object.Status.Conditions) == 0 && !each.othersSigner() {
				return fmt.Errorf("%s is not decided", each.name)
			}
		}
		return nil
	})
}

// othersSigner says that it is filed under a foreign signer.
func (e *lie) othersSigner() bool {
	return slices.Contains(e.checks, string(csr.CheckSignerName)) && e.object.Spec.SignerName != csr.SignerChallengeTPM
}

// judge compares the outcome with the checks.
func (e *lie) judge(t *testing.T, met map[string]int) {
	t.Helper()
	switch {
	case e.refused != nil:
		if !apierrors.IsInvalid(e.refused) {
			t.Errorf("%s: %v", e.name, e.refused)
		}
		return
	case e.othersSigner():
		if met[string(csr.CheckSignerName)]++; len(e.object.Status.Conditions) != 0 {
			t.Errorf("%s: %+v, want no condition", e.name, e.object.Status.Conditions)
		}
		return
	}
	condition := e.object.Status.Conditions[0]
	i := slices.IndexFunc(e.checks, func(check string) bool {
		return condition.Reason == (&refusal.Error{Check: refusal.Check(check)}).Reason() && strings.Contains(condition.Message, check)
	})
	if condition.Type != certificatesv1.CertificateDenied || i < 0 || len(e.object.Status.Certificate) != 0 {
		t.Errorf("%s: got %s %s: %.200s, want Denied by %v", e.name, condition.Type, condition.Reason, condition.Message, e.checks)
		return
	}
	met[e.checks[i]]++
}

// logged looks for the reason in the controller's log, which says more than the condition.
func (e *lie) logged(t *testing.T, controller *replica) {
	t.Helper()
	if e.why == "" || e.object == nil {
		return
	}
	for line := range strings.Lines(controller.text(t)) {
		if strings.Contains(line, strconv.Quote(e.object.Name)) && strings.Contains(line, e.why) {
			return
		}
	}
	t.Errorf("%s: the controller logs nothing of %q", e.name, e.why)
}

// joins has the node join by its bootstrap token. The certificate is its credential from then on.
func (l *liars) joins(t *testing.T) {
	t.Helper()
	leaf := l.admits(t, "a bootstrap token", l.bench.BootstrapAsks, same)
	l.recorded(t, forge.NodeName, leaf)
}

// admitted files the good messages behind the lies, in a node's order.
func (l *liars) admitted(t *testing.T) {
	t.Helper()
	for _, row := range []struct {
		name   string
		good   func() *forge.Asked
		change func(*forge.Asked)
	}{
		{"a bootstrap token once more", l.bench.BootstrapAsks, same},
		{"a node", l.bench.NodeAsks, same},
		{"a node, for serving", l.bench.NodeServes, same},
		{"a node, for recovery", l.bench.NodeAsks, (*forge.Asked).ForRecovery},
		{"a node's recovery user", l.bench.NodeAsks, func(a *forge.Asked) { a.ByRecoveryUser(forge.NodeName) }},
		{"a node, from Kubernetes' signer", l.bench.NodeAsks, builtIn(3600)},
		{"a kubelet, by its client certificate", l.bench.NodeServes, kubeletServes},
	} {
		l.admits(t, row.name, row.good, row.change)
	}
}

// admits files a good message, and returns the certificate. It is nil from Kubernetes' signers, which do not
// run. A client certificate is the requester's credential from then on.
func (l *liars) admits(t *testing.T, name string, good func() *forge.Asked, change func(*forge.Asked)) *x509.Certificate {
	t.Helper()
	l.bench.Now = time.Now()
	truth := &lie{name: name, request: l.asked(t, forge.MachineOne, good, change)}
	l.file(t, []*lie{truth})
	if truth.refused != nil {
		t.Fatalf("%s: %v", name, truth.refused)
	}
	l.decided(t, []*lie{truth})
	if condition := truth.object.Status.Conditions[0]; condition.Type != certificatesv1.CertificateApproved {
		t.Fatalf("%s: %s %s: %s", name, condition.Type, condition.Reason, condition.Message)
	}
	if csr.ProviderOf(truth.object.Spec.SignerName) == "" {
		return nil
	}
	leaf := certificateOf(t, decided(t, l.admin, truth.object)) // when it is signed
	if slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		l.comesBack(t, leaf)
	}
	return leaf
}
