package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// page is docs/getting-started.md.
const page = "../../docs/getting-started.md"

// maxCommands is how many commands the page may have, from an empty machine to a node.
const maxCommands = 10

// commandsOf returns the commands of a page: what stands in blocks of sh, each a line.
func commandsOf(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(text, -1) {
		for line := range strings.Lines(string(block[1])) {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	if len(commands) == 0 || len(commands) > maxCommands {
		t.Fatalf("%s has %d commands, want 1 to %d", path, len(commands), maxCommands)
	}
	return commands
}

// TestGettingStarted runs every command of the page, in order and in one shell, on a clone
// of this very tree. It ends with the node Ready through attestation alone, and with whoever
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
	s := newShell(t)
	outputs := map[string]string{}
	for _, command := range commandsOf(t, page) {
		if strings.HasSuffix(command, " down") { // the last one, which leaves nothing to look at
			checkPage(t, s, outputs)
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
		"is asked for with evidence", "NotAMember", "registry-name", // the thief
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

// shell is a shell in which one command runs after the other, as on a terminal.
type shell struct {
	in     io.Writer
	out    *bufio.Reader
	folder string
	// clone is where the page's clone is.
	clone string
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
	s := &shell{folder: folder, clone: filepath.Join(folder, "nodeattest")}
	cmd := exec.Command("bash")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "LAPTOP_PORTS="+strings.Join(freePorts(t, 8), " "), "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url."+repository+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/nodeattest/nodeattest")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := exec.Command("bash", "-c", "tail -n 15 "+s.clone+"/.cache/laptop/*.log").CombinedOutput()
			t.Logf("the ends of the logs:\n%s", logs)
		}
		_, _ = io.WriteString(in, "cd "+s.clone+" && scripts/laptop.sh down\n")
		_ = in.Close()
		_, _ = io.Copy(io.Discard, s.out)
		_ = cmd.Wait()
	})
	return s
}

// run types one command and returns what it printed. It must succeed.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	const mark = "=== status "
	fmt.Fprintf(s.in, "%s\nprintf '\\n%s%%d\\n' $?\n", command, mark)
	var out bytes.Buffer
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the shell has ended after %s: %v\n%s", command, err, out.Bytes())
		}
		if status, ok := strings.CutPrefix(line, mark); ok {
			t.Logf("$ %s\n%s", command, out.Bytes())
			if strings.TrimSpace(status) != "0" {
				t.Fatalf("%s: status %s", command, status)
			}
			return out.String()
		}
		out.WriteString(line)
	}
}
