package kube

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// maxCommands is how many commands the page may have, from an empty machine to a node.
const maxCommands = 10

// TestGettingStarted runs every command of the page, in order and in one shell, on a clone
// of this very tree. It ends with the node Ready through attestation alone, and with each machine that
// has its token and another TPM refused.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a kubelet, and so the page, needs root: run the test as root")
	}
	if _, err := exec.LookPath("swtpm_setup"); err != nil {
		t.Skip("no swtpm_setup; run in the repository: make setup")
	}
	controlplane.Binaries(t)
	p := readPage(t, "getting-started.md", "sh", "text")
	again, listed := p.take(t, "Decide again", "sh"), p.take(t, "A node", "text")
	commands := p.commands(t)
	if len(commands) > maxCommands {
		t.Errorf("%d commands, want at most %d: %q", len(commands), maxCommands, commands)
	}
	s := newShell(t)
	outputs := map[string]string{}
	for _, command := range commands {
		if strings.HasSuffix(command, " down") { // the last one, which leaves nothing to look at
			checkPage(t, s, outputs)
			checkListed(t, s, listed)
			checkAgain(t, s, again)
		}
		outputs[command] = s.run(t, command)
	}
	if out := s.run(t, "cat .cache/laptop/*.pid 2>/dev/null || echo none"); !strings.Contains(out, "none") {
		t.Errorf("after the last command there are processes: %s", out)
	}
}

// checkPage looks at the cluster as the page leaves it.
func checkPage(t *testing.T, s *shell, outputs map[string]string) {
	t.Helper()
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal([]byte(s.run(t, "kubectl get node laptop -o json")), &node); err != nil {
		t.Fatal(err)
	}
	ready := false
	for _, c := range node.Status.Conditions {
		ready = ready || c.Type == "Ready" && c.Status == "True"
	}
	if !ready {
		t.Errorf("the node is not ready: %+v", node)
	}
	var all string
	for _, out := range outputs {
		all += out
	}
	for _, want := range []string{
		"node/laptop condition met", "laptop   Bound   ek:sha256:", // the node
		"asks for its client certificate with evidence", "NotAMember", "registry-name", // the thief
	} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if issued := s.run(t, "kubectl get csr -o json | grep -c '\"certificate\"' || true"); strings.TrimSpace(issued) != "1" {
		t.Errorf("%s certificates were issued, want 1", issued)
	}
	checkAudit(t, s)
}

// checkListed holds the page's list of nodes to the cluster's: what differs from one machine or time
// to another may.
func checkListed(t *testing.T, s *shell, listed string) {
	t.Helper()
	same := regexp.MustCompile(`[0-9a-f]{64}|20\d\d-\S+Z|\d+m?\d*s\b| +`).ReplaceAllString
	if got := s.run(t, "kubectl get attestednodes"); same(strings.TrimSpace(got), "") != same(strings.TrimSpace(listed), "") {
		t.Errorf("kubectl prints\n%s\nand the page\n%s", got, listed)
	}
}

// checkAgain decides both requests of the cluster again as the page does: the node's, and that of
// the thief.
func checkAgain(t *testing.T, s *shell, again string) {
	t.Helper()
	for condition, outcome := range map[string]string{`type=="Approved"`: "admitted", `reason=="NotAMember"`: "refused"} {
		names := strings.Fields(s.run(t, "kubectl get csr -o jsonpath='{.items[?(@.status.conditions[0]."+condition+")].metadata.name}'"))
		if len(names) == 0 {
			t.Fatalf("no request with %s", condition)
		}
		out := s.run(t, "( set -e\n"+strings.ReplaceAll(again, "REQUEST", names[0])+") || [ $? = 1 ]")
		if !strings.Contains(out, `"outcome": "`+outcome+`"`) {
			t.Errorf("a request with %s is not %s again", condition, outcome)
		}
	}
}

// checkAudit holds every request of the node in the audit log against the one certificate
// that was issued through attestation.
func checkAudit(t *testing.T, s *shell) {
	t.Helper()
	attested := strings.TrimSpace(s.run(t, "kubectl get attestednode laptop -o jsonpath='{.spec.certificates[*].credentialID}'"))
	log, err := os.Open(filepath.Join(s.clone, ".cache", "laptop", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	requests := 0
	for lines := json.NewDecoder(log); ; {
		var event struct {
			RequestURI string
			User       struct {
				Username string
				Extra    map[string][]string
			}
		}
		if err := lines.Decode(&event); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the last line may not be whole yet
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if event.User.Username != "system:node:laptop" {
			continue
		}
		requests++
		if got := event.User.Extra["authentication.kubernetes.io/credential-id"]; len(got) != 1 || got[0] != attested {
			t.Errorf("%s came with %v, want %s", event.RequestURI, got, attested)
		}
	}
	t.Logf("%d requests of the node, all with %s", requests, attested)
	if requests == 0 || !strings.HasPrefix(attested, "X509SHA256=") {
		t.Error("the node has asked for nothing")
	}
}

// newShell starts a shell in an empty folder, to which the project's address on the network
// is a repository of this very tree.
func newShell(t *testing.T) *shell {
	t.Helper()
	folder := t.TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	repository := filepath.Join(folder, "published")
	for _, args := range [][]string{
		{"init", "-q", repository},
		{"--git-dir=" + repository + "/.git", "--work-tree=" + root, "add", "-A"},
		{"-C", repository, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "this tree"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	s := startShell(t, folder, "LAPTOP_PORTS="+strings.Join(controlplane.FreePorts(t, 8), " "), "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url."+repository+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/nodeattest/nodeattest")
	s.clone = filepath.Join(folder, "nodeattest")
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := exec.Command("bash", "-c", "tail -n 15 "+s.clone+"/.cache/laptop/*.log").CombinedOutput()
			t.Logf("the ends of the logs:\n%s", logs)
		}
		_, _ = io.WriteString(s.in, "cd "+s.clone+" && scripts/laptop.sh down\n")
	})
	return s
}
