package kube

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// bootedMachine is a machine that boots: its TPM measures, and its firmware leaves a log.
type bootedMachine struct {
	*nodeMachine
	device *tpmsim.TPM
	log    string
}

// boots resets the machine, and has it boot.
func (b *bootedMachine) boots(t *testing.T, secureBoot bool, kernel string) {
	t.Helper()
	if err := b.device.Reset(); err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, filepath.Dir(b.log), filepath.Base(b.log), tpmlab.Boot(t, b.device, tpmlab.BootEvents(secureBoot, kernel)))
}

// rotates has the node renew its certificate; want is the reason of a refusal, "" for none.
func (b *bootedMachine) rotates(t *testing.T, want string) {
	t.Helper()
	_, stderr, err := b.run(t.Context(), "rotate")
	if (err != nil) != (want != "") || !strings.Contains(stderr, want) {
		t.Errorf("%s: got %v: %s, want %q", b.name, err, stderr, want)
	}
	if want != "" {
		t.Log(strings.TrimSpace(stderr))
	}
}

// TestBoot: the shipped controller sees by the event log that a machine has booted with Secure Boot off. With
// secureBoot: observe it counts and shows that, with require it refuses the machine. Values exported from
// nodes that run become goodPCRs, and a kernel's update is admitted by the second set.
func TestBoot(t *testing.T) {
	t.Parallel()
	program, authenticator := buildProgram(t, "node-attestation-controller"), buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	first := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.knowMachines(t, first, "node-1", "node-2")
	machines := map[string]*bootedMachine{}
	for name, device := range map[string]*tpmsim.TPM{"node-1": first, "node-2": tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true, CA: first.CA()})} {
		b := &bootedMachine{device: device, log: filepath.Join(t.TempDir(), "binary_bios_measurements")}
		b.nodeMachine = c.install(t, authenticator, name, device, func(config map[string]any) {
			evidence := config["evidence"].(map[string]any)["tpm"].(map[string]any)
			evidence["quote"], evidence["eventLog"] = true, b.log
		})
		b.boots(t, name != "node-1", "kernel 1")
		machines[name] = b
	}
	off, on, o := machines["node-1"], machines["node-2"], c.newOperator(t)
	sets := c.testObserved(t, program, o, off, on)
	r := c.startController(t, program, "requires", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["tpm"].(map[string]any)["secureBoot"], config["tpm"].(map[string]any)["goodPCRs"] = "require", sets
	})
	r.isReady(t)
	off.rotates(t, "turn it on in the firmware settings of the machine and boot it again, and its node joins")
	on.rotates(t, "") // by the second set
	o.shows(t, "measurements node-2", "Secure Boot   On", "good PCRs     goodPCRs[1]")
	on.boots(t, true, "kernel 1")
	on.rotates(t, "")
	o.shows(t, "measurements diff node-2", "goodPCRs[1]", "goodPCRs[0]", "PCR 4 ")
	on.boots(t, true, "kernel 3")
	on.rotates(t, "PcrPolicy")
	o.shows(t, "measurements node-2", "none of 2 sets of values")
	log := controlplane.Read(t, on.log)
	for text, want := range map[string]string{
		string(log[:len(log)-30]): "EventLogEncoding", strings.Repeat("\x01", 1<<20): "at most 131072 bytes",
	} {
		on.boots(t, true, "kernel 1")
		controlplane.Write(t, filepath.Dir(on.log), filepath.Base(on.log), []byte(text))
		on.rotates(t, want)
	}
	off.boots(t, true, "kernel 2")
	off.rotates(t, "")
	o.shows(t, "measurements diff node-1", "Off", "On", "PCR 7 ")
	if got := counted(t, r, "nodeattest_boots_total"); len(got) > 6 || got[`pcrs="good",secure_boot="off"`] < 1 || got[`pcrs="good",secure_boot="on"`] < 3 || got[`pcrs="other",secure_boot="on"`] < 1 {
		t.Errorf("counted %v", got)
	}
	r.checkLog(t)
	r.stop(t)
}

// testObserved has both machines join while a controller observes. It returns the values of node-2 under
// two kernels, as an operator exports them.
func (c *cluster) testObserved(t *testing.T, program string, o *operator, off, on *bootedMachine) []any {
	t.Helper()
	r := c.startController(t, program, "observes", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["tpm"].(map[string]any)["secureBoot"] = "observe"
	})
	r.isReady(t)
	c.joinsAndRenews(t, off.nodeMachine)
	_, pair := on.credential(t)
	c.recorded(t, on.name, pair.Leaf)
	o.shows(t, "measurements node-1", "Secure Boot   Off", "turn it on in the firmware settings")
	o.shows(t, "measurements node-2", "Secure Boot   On", "PCR 7 ")
	o.shows(t, "measurements diff node-1 node-2", "Secure Boot  Off ", "PCR 7 ")
	if got := counted(t, r, "nodeattest_boots_total"); got[`pcrs="unasked",secure_boot="off"`] != 2 || got[`pcrs="unasked",secure_boot="on"`] != 1 {
		t.Errorf("counted %v", got)
	}
	var sets []any
	for _, kernel := range []string{"kernel 1", "kernel 2"} {
		if kernel == "kernel 2" {
			on.boots(t, true, kernel)
			on.rotates(t, "")
			o.shows(t, "measurements diff node-2", "PCR 4 ")
		}
		out := o.run(t, "measurements export --pcrs 0,2,4", "left out, as Secure Boot is off or unknown or their last boot has another fault: node-1;")
		var found struct {
			GoodPCRs []any `json:"goodPCRs"`
		}
		if err := yaml.Unmarshal([]byte(out[strings.Index(out, "# For the section"):]), &found); err != nil || len(found.GoodPCRs) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		sets = append(sets, found.GoodPCRs[0])
	}
	if fmt.Sprint(sets[0]) == fmt.Sprint(sets[1]) {
		t.Errorf("both kernels have the values %v", sets)
	}
	if out, err := o.plain(t.Context(), "get", "attestednodes", "-o", "wide"); err != nil || !strings.Contains(out, "SECURE BOOT") || strings.Count(out, " Off ") != 1 {
		t.Errorf("%v: %s", err, out)
	}
	r.checkLog(t)
	r.stop(t)
	return sets
}

// shows runs a command until it prints all of want: the status is written a second later.
func (o *operator) shows(t *testing.T, command string, want ...string) {
	t.Helper()
	eventually(t, func() error {
		out, err := o.try(t.Context(), strings.Fields(command)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("kubectl nodeattest %s: %w, want %q in\n%s", command, err, w, out)
			}
		}
		return nil
	})
}
