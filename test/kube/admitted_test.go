package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// requestsOf are the audited requests of a user, in order.
func (c *cluster) requestsOf(t *testing.T, user string) (events []auditEvent) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(controlplane.Read(t, c.auditLog)))
	lines.Buffer(nil, 4<<20)
	seen := map[string]bool{}
	for lines.Scan() {
		var e auditEvent
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.User.Username == user && !seen[e.AuditID] {
			seen[e.AuditID] = true
			events = append(events, e)
		}
	}
	return events
}

// TestAdmitted has an operator approve a machine whose node was refused so often that it pauses for minutes: the node
// has its certificate within seconds, under the shipped roles and policies.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	c.applyAdmission(t)
	c.applyWall(t)
	operator := c.newOperator(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.knowMachines(t, device, "node-1")
	mode := func(config map[string]any) { config["membership"].(map[string]any)["mode"] = "Approval" }
	c.makeConfigMap(t, string(controlplane.Read(t, filepath.Join(c.dir, "inventory.yaml"))), mode) // for the operator
	r := c.startController(t, buildProgram(t, controller.DefaultName), "controller", func(config map[string]any) {
		mode(config)
		config["controller"].(map[string]any)["insecureAllowWaysAround"] = false
	})
	r.isReady(t)
	m := c.install(t, program, "node-1", device, nil)
	m.refused(t) // which makes the folder
	// As after hours of refusals.
	state := filepath.Join(m.dir, "state", "state.json")
	text := regexp.MustCompile(`"failures": \d+`).ReplaceAll(controlplane.Read(t, state), []byte(`"failures": 9`))
	if err := os.WriteFile(state, regexp.MustCompile(`"next": "[^"]*",?`).ReplaceAll(text, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	bootstrap := csr.BootstrapUserPrefix + attesttest.TokenID
	before := len(c.requestsOf(t, bootstrap))
	startAs(t, "daemon", program, m.dir, "-config", m.config, "daemon")
	var client authenticator.CertificateStatus
	eventually(t, func() error {
		if client = m.status(t).Certificates[0]; client.Failures < 10 || time.Until(client.NextAttempt) < time.Minute {
			return fmt.Errorf("no long pause yet: %+v", client)
		}
		return nil
	})
	time.Sleep(time.Second) // the watch
	filed := c.requestsOf(t, bootstrap)[before:]

	machine := regexp.MustCompile(`ek:sha256:[0-9a-f]{64}`).FindString(operator.run(t, "pending", "node-1"))
	began := time.Now()
	operator.run(t, "approve node-1 --machine "+machine, "node node-1 is machine "+machine)
	approved := time.Now()
	file := filepath.Join(m.dir, "state", authenticator.ClientFile)
	for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
		if time.Since(approved) > 30*time.Second {
			t.Fatalf("no certificate: %v; %+v", err, m.status(t).Certificates[0])
		}
		time.Sleep(20 * time.Millisecond)
	}
	took := time.Since(approved)
	perAttempt := len(filed)
	t.Logf("from the approval to the certificate: %.2f s, of kubectl's command %.2f s; the node would have waited %s", took.Seconds(), approved.Sub(began).Seconds(), time.Until(client.NextAttempt).Round(time.Second))
	if took > 5*time.Second {
		t.Error("want at most 5 s")
	}
	// Its pauses are between 150 and 300 s, 225 s on average.
	t.Logf("a waiting node makes %d requests an attempt, so %d an hour (without the watch of the refused request %d): %s", perAttempt, perAttempt*16, (perAttempt-1)*16, verbs(filed))
	if perAttempt != 3 {
		t.Errorf("%d requests an attempt, want 3: a hello, and two watches", perAttempt)
	}
	r.checkLog(t)
}

// verbs are the verbs of requests.
func verbs(events []auditEvent) (all []string) {
	for _, e := range events {
		all = append(all, e.Verb)
	}
	return slices.Clip(all)
}
