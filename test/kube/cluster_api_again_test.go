package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// standalone makes a Machine of the Cluster with a fixed name, and waits for its token and provider ID.
func (f *fleet) standalone(t *testing.T, name string) *fleetMachine {
	t.Helper()
	f.home.make(t, object(infraGroup, "v1beta2", "FakeMachine", name, fields{}))
	f.home.make(t, object(bootstrapGroup, f.version, "KubeadmConfig", name, fields{
		"joinConfiguration": fields{"nodeRegistration": fields{"name": "node-1"}}}))
	machine := object(coreGroup, f.version, "Machine", name, fields{"clusterName": fleetCluster, "version": "v1.36.3",
		"bootstrap":         fields{"configRef": f.ref(bootstrapGroup, "KubeadmConfig", name)},
		"infrastructureRef": f.ref(infraGroup, "FakeMachine", name)})
	machine["metadata"].(fields)["labels"] = fields{coreGroup + "/cluster-name": fleetCluster}
	f.home.make(t, machine)
	m := &f.machines(t, 1)[0]
	f.provision(t, m)
	return m
}

// remakes deletes a Machine, and makes one of its name.
func (f *fleet) remakes(t *testing.T, m *fleetMachine) *fleetMachine {
	t.Helper()
	if err := f.home.admin.Delete(t.Context(), m.Unstructured); err != nil {
		t.Fatal(err)
	}
	name := m.GetName()
	eventually(t, func() error {
		for group, kind := range map[string]string{coreGroup: "Machine", infraGroup: "FakeMachine", bootstrapGroup: "KubeadmConfig"} {
			version := f.version
			if group == infraGroup {
				version = "v1beta2"
			}
			left, err := f.list(t.Context(), group, version, kind)
			if err != nil {
				return err
			}
			if len(left) != 0 {
				return errors.New(kind + " " + left[0].GetName() + " is still there")
			}
		}
		return nil
	})
	return f.standalone(t, name)
}

// TestAgain has bare metal be provisioned again under its name: with the same TPM it joins at once, with
// another one once the operator has rebound the node.
func TestAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "v1beta2", 0)
	ca := newCA(t, "")
	first, second := tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	f.writeRoots(t, f.nodeOn(t, first, "node-1"))
	m := f.standalone(t, "metal-1")
	r := f.byMachines(t)
	joins := func(m *fleetMachine, device *tpmsim.TPM) (certified bool, note string) {
		t.Helper()
		object := f.files(t, f.bearing(t, m.token), f.stranger(t, device, "node-1", m.providerID))
		c := object.Status.Conditions[0]
		return string(c.Type) == "Approved", c.Reason + ": " + c.Message
	}
	if ok, note := joins(m, first); !ok {
		t.Fatal(note)
	}
	f.sweeps(t, r, map[string]string{"node-1": string(m.GetUID())})
	again := f.remakes(t, m)
	began := time.Now()
	if ok, note := joins(again, first); !ok {
		t.Fatalf("the same TPM: %s", note)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the same TPM got its certificate after %v", took)
	}
	if got := f.attestedNodes(t)["node-1"].Spec; got.MachineUID != string(again.GetUID()) || got.Machine != identity(t, first) {
		t.Errorf("the record is %+v", got)
	}
	f.sweeps(t, r, map[string]string{"node-1": string(again.GetUID())})
	other := f.remakes(t, again)
	if ok, note := joins(other, second); ok || !strings.HasPrefix(note, "NotAMember") {
		t.Errorf("another TPM: approved %t, %s", ok, note)
	}
	f.newOperator(t).run(t, "rebind node-1 --machine "+identity(t, second)+" --replaces "+identity(t, first)+" --without-inventory",
		"node node-1 is machine "+identity(t, second))
	if ok, note := joins(other, second); !ok {
		t.Errorf("another TPM, rebound: %s", note)
	}
	if got := f.attestedNodes(t)["node-1"].Spec; got.MachineUID != string(other.GetUID()) || got.Machine != identity(t, second) {
		t.Errorf("the record is %+v", got)
	}
	r.checkLog(t)
}
