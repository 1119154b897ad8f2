package node

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestMigrateUnfinished: from the journal's first byte until its removal, a node says that its migration has not
// ended, with a command that ends it.
func TestMigrateUnfinished(t *testing.T) {
	phases := map[string]int{}
	for step := 0; ; step++ {
		n := newPlainNode(t)
		if err := checkEnded(n.path("state")); err != nil {
			t.Fatalf("before: %v", err)
		}
		name, ended := n.interrupted(t, step)
		if !ended {
			break
		}
		text, journal := "", n.get("state/migration.json")
		if err := checkEnded(n.path("state")); err != nil {
			text = err.Error()
		}
		m := n.migration(nil)
		switch {
		case journal == "":
			phases["none"]++
			if text != "" {
				t.Errorf("%s: %s", name, text)
			}
		case strings.Contains(journal, phaseReady):
			phases[phaseReady]++
			if !strings.Contains(text, "with a Ready kubelet") || !strings.Contains(text, `run "kubelet-authenticator migrate" again`) {
				t.Errorf("%s: %s", name, text)
			}
		default:
			m.undo = phases[phaseChanging]%2 == 0
			phases[phaseChanging]++
			if !strings.Contains(text, `run "kubelet-authenticator migrate" again, or "kubelet-authenticator migrate --undo"`) || !strings.Contains(text, n.path("state/migration.json")) {
				t.Errorf("%s: %s", name, text)
			}
		}
		testkit.NoError(t, m.run(t.Context()))
		testkit.NoError(t, checkEnded(n.path("state")))
	}
	if phases["none"] == 0 || phases[phaseReady] < 5 || phases[phaseChanging] < 8 {
		t.Errorf("steps by phase: %v", phases)
	}
	testkit.NoError(t, checkEnded(t.TempDir()+"/none"))
	for _, text := range []string{"", "{", `{"phase":"later"}`, "{}"} {
		n := newPlainNode(t)
		n.put("state/migration.json", text)
		if err := checkEnded(n.path("state")); err == nil || !strings.Contains(err.Error(), n.path("state/migration.json")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestUnfinishedForeign: a journal that names a file that migrate does not change, such as one written by a program
// with this folder alone, changes nothing.
func TestUnfinishedForeign(t *testing.T) {
	n := newPlainNode(t)
	n.put("etc/shadow", "root")
	n.put("state/migration.json", `{"phase":"changing","files":[{"path":"`+n.path("etc/kubernetes/kubelet.conf")+`","existed":true},`+
		`{"path":"`+n.path("etc/shadow")+`"}]}`)
	before, invocation := n.tree(), n.get("run/invocation")
	for _, undo := range []bool{true, false} {
		m := n.migration(nil)
		m.undo = undo
		if err := m.run(t.Context()); !errors.Is(err, checkMigrate) || !strings.Contains(err.Error(), n.path("etc/shadow")) {
			t.Errorf("undo %t: got %v", undo, err)
		}
	}
	n.untouched(t, before, invocation)
}

// TestUnfinishedOldFileGone: with the new kubelet.conf and no old one, nothing claims that the old file is back.
// Once the administrator has written it again, the migration can be put back.
func TestUnfinishedOldFileGone(t *testing.T) {
	n := newPlainNode(t)
	before := n.tree()
	for step, name := 0, ""; !strings.HasPrefix(name, "systemctl daemon-reload"); step++ {
		n = newPlainNode(t)
		var running bool
		if name, running = n.interrupted(t, step); !running {
			t.Fatal("no such step")
		}
	}
	testkit.MustDo(os.Remove(n.path("etc/kubernetes/.kubelet.conf.migrate-old")))
	m := n.migration(nil)
	m.undo = true
	if err := m.run(t.Context()); !errors.Is(err, checkMigrate) || !strings.Contains(err.Error(), "not everything is put back") ||
		!strings.Contains(err.Error(), n.path("etc/kubernetes/kubelet.conf")) || strings.Contains(n.out.String(), "is put back") {
		t.Errorf("got %v\n%s", err, &n.out)
	}
	n.put("etc/kubernetes/kubelet.conf", joinedConf)
	testkit.NoError(t, m.run(t.Context()))
	testkit.NoError(t, checkEnded(n.path("state")))
	n.start()
	testkit.NoError(t, remove(n.path("run/service")))
	n.untouched(t, before, "")
}

// TestUnfinishedShown: status and doctor show it, and change nothing.
func TestUnfinishedShown(t *testing.T) {
	device, p := tpmsim.Swtpm(t, tpmsim.Options{}), newPatient(t)
	testkit.MustDo(os.Mkdir(p.path("state"), 0o700))
	p.write("state/migration.json", `{"phase":"changing"}`)
	const command = `"kubelet-authenticator migrate --undo"`
	status, out := p.examine("device: "+devicePath(device), p.server.Certificate().Raw, "token: "+goodToken, "false")
	if status != 6 || !strings.HasPrefix(out, "BROKEN   migration   ") || !strings.Contains(out, command) || strings.Count(out, "BROKEN") != 1 {
		t.Errorf("doctor: status %d\n%s", status, out)
	}
	show := func() string {
		t.Helper()
		var shown, errs bytes.Buffer
		if err := run(t.Context(), []string{"-config", p.path("config.yaml"), "status"}, &shown, &errs, nil); !errors.Is(err, errNotUsable) {
			t.Fatalf("%v: %s", err, &errs)
		}
		return shown.String()
	}
	if out := show(); !strings.Contains(out, command) {
		t.Errorf("status\n%s", out)
	}
	if names := testkit.Must(os.ReadDir(p.path("state"))); len(names) != 1 {
		t.Errorf("%d files", len(names))
	}
	testkit.MustDo(os.Remove(p.path("state/migration.json")))
	if out := show(); strings.Contains(out, "migrat") {
		t.Errorf("afterwards, status\n%s", out)
	}
}
