package kube

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// longVar makes long tests ten times as long, as they are run by hand.
const longVar = "NODEATTEST_LONG"

// TestManyNodes starts the controller in a cluster of many nodes, and has one more join.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	nodes := 1000
	if os.Getenv(longVar) != "" {
		nodes *= 10
	}
	program := buildProgram(t, "node-attestation-controller")
	c := startJoinable(t)
	began := time.Now()
	c.attested(t, nodes)
	t.Logf("%d nodes made in %s", nodes, time.Since(began).Round(time.Millisecond))

	clusterID := c.clusterID(t)
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: tpmsim.Swtpm(t, tpmsim.Options{}), Road: attest.RoadEK, ClusterID: clusterID, ExpirationSeconds: 3600,
		AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
	node.Subject.SignerName = csr.SignerKubeAPIServerClientKubelet
	c.writeRoots(t, node)
	controlplane.Write(t, c.dir, "inventory.yaml", []byte("machines:\n- nodeName: "+node.Name+"\n  providerID: "+attesttest.ProviderID+"\n"))

	began = time.Now()
	r := c.startController(t, program, "controller", func(config map[string]any) { config["membership"].(map[string]any)["mode"] = "FirstUse" })
	r.isReady(t)
	t.Logf("ready, with all of them listed, in %s", time.Since(began).Round(time.Millisecond))
	for _, megabytes := range counted(t, r, "process_resident_memory_bytes") {
		t.Logf("resident memory: %.0f MB", megabytes/1e6)
	}
	c.joins(t, c.client(t, c.bearer(t, attesttest.TokenID)), node)
}

// attested makes records of nodes as joins leave them.
func (c *cluster) attested(t *testing.T, nodes int) {
	t.Helper()
	work := make(chan int)
	var done sync.WaitGroup
	for range 32 {
		done.Go(func() {
			for i := range work {
				machine, uid, name := fmt.Sprintf("ek:sha256:%064x", i), fmt.Sprintf("uid-%d", i), fmt.Sprintf("made-%d", i)
				n := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AttestedNodeSpec{
					Scope: "ek RSA-2048", Machine: machine, MachineUID: uid, State: v1alpha1.NodeBound, LastEnd: in(time.Hour),
					Certificates: []v1alpha1.IssuedCertificate{{CredentialID: fmt.Sprintf("X509SHA256=%064x", i), SignerName: csr.SignerKubeAPIServerClientKubelet,
						Machine: machine, MachineUID: uid, SPKISHA256: fmt.Sprintf("%064x", i), NotBefore: in(0), NotAfter: *in(time.Hour)}}}}
				err := c.admin.Create(t.Context(), n)
				to := v1alpha1.NodeReference{NodeName: name, Reservation: string(n.UID) + "/" + n.ResourceVersion}
				if err == nil {
					err = c.admin.Create(t.Context(), &v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(machine)}, Spec: v1alpha1.AttestedMachineSpec{Machine: machine, NodeReference: to}})
				}
				if err == nil {
					err = c.admin.Create(t.Context(), &v1alpha1.AttestedMachineUID{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(uid)}, Spec: v1alpha1.AttestedMachineUIDSpec{MachineUID: uid, NodeReference: to}})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range nodes {
		work <- i
	}
	close(work)
	done.Wait()
}
