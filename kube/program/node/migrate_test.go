package node

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestMigrate(t *testing.T) {
	n := newPlainNode(t)
	n.approved.Store(false)
	n.approve = 20 * time.Millisecond
	restarts := 0
	m := n.migration(func(step string) error {
		if step == "systemctl restart kubelet" {
			restarts++
		}
		return nil
	})
	testkit.NoError(t, m.run(t.Context()))
	n.migrated(t)
	if restarts != 1 {
		t.Errorf("the kubelet was restarted %d times", restarts)
	}
	const sentence = "kubectl nodeattest approve worker-1 --machine MACHINE --existing-node"
	if text := n.out.String(); strings.Count(text, sentence) != 1 {
		t.Errorf("the operator is told\n%s", text)
	}
	after := n.tree()
	testkit.NoError(t, n.migration(nil).run(t.Context()))
	if n.tree()["etc/kubernetes/kubelet.conf"] != after["etc/kubernetes/kubelet.conf"] || !strings.Contains(n.out.String(), "nothing to do") {
		t.Errorf("a second run changes the node: %s", &n.out)
	}
}

// TestMigrateDropIn: the drop-in is the shipped one, but for comments.
func TestMigrateDropIn(t *testing.T) {
	comments := regexp.MustCompile(`(?m)^(#.*)?\n`)
	got := testkit.Must(newDropIn("kubeadm's", packagedDropIn))
	if want := read(t, kubeadmDropIn); comments.ReplaceAllString(got, "") != comments.ReplaceAllString(want, "") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestMigrateBroken: a kubelet that does not come up gets its old files back.
func TestMigrateBroken(t *testing.T) {
	for _, older := range []bool{false, true} {
		n := newPlainNode(t)
		if n.broken = true; older { // packages and guides that put the drop-in where administrators do
			n.put("etc/systemd/system/kubelet.service.d/"+kubeadmDropIn, packagedDropIn)
			n.put("etc/systemd/system/kubelet.service.d/20-log.conf", "[Service]\nStandardOutput=null\n")
		}
		before := n.tree()
		err := n.migration(nil).run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "everything is put back") || !strings.Contains(err.Error(), "not Ready within") || exitStatus(err) != 1 {
			t.Errorf("got %v", err)
		}
		n.untouched(t, before, "")
		n.broken = false
		testkit.NoError(t, n.migration(nil).run(t.Context()))
		n.migrated(t)
	}
}

// TestMigrateSignal: a signal while the kubelet starts has everything put back, too.
func TestMigrateSignal(t *testing.T) {
	n := newPlainNode(t)
	n.broken = true
	before := n.tree()
	ctx, cancel := context.WithCancel(t.Context())
	m := n.migration(func(step string) error {
		if step == "wait" {
			cancel()
		}
		return nil
	})
	m.readyLimit = time.Hour
	if err := m.run(ctx); err == nil || !strings.Contains(err.Error(), "everything is put back") {
		t.Errorf("got %v", err)
	}
	n.untouched(t, before, "")
}

// TestMigrateUnapproved: without an operator, nothing has changed.
func TestMigrateUnapproved(t *testing.T) {
	n := newPlainNode(t)
	n.approved.Store(false)
	before, invocation := n.tree(), n.get("run/invocation")
	m := n.migration(nil)
	m.timeout = 20 * time.Millisecond
	if err := m.run(t.Context()); exitStatus(err) != 3 || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v", err)
	}
	n.untouched(t, before, invocation)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.migration(nil).run(ctx); exitStatus(err) != 1 {
		t.Errorf("after a signal: got %v", err)
	}
	n.untouched(t, before, invocation)
}

// TestMigrateDiffers: files that kubeadm did not write are refused with the line, before any change.
func TestMigrateDiffers(t *testing.T) {
	const conf, dropIn, dropIns = "etc/kubernetes/kubelet.conf", "usr/lib/systemd/system/kubelet.service.d/" + kubeadmDropIn, "etc/systemd/system/kubelet.service.d/"
	for name, row := range map[string]struct {
		file, old, with string
		want            string
	}{
		"a proxy":               {conf, "    server:", "    proxy-url: http://192.0.2.9\n    server:", "kubelet.conf, line 5,"},
		"another certificate":   {conf, "client-key: /var/lib/kubelet/pki/", "client-key: /root/", "kubelet.conf, line 19,"},
		"a token":               {conf, "  user:\n", "  user:\n    token: secret-value\n", "kubelet.conf, line 18,"},
		"a comment":             {conf, "kind: Config\n", "# mine\nkind: Config\n", "kubelet.conf, line 14,"},
		"more at the end":       {conf, "", joinedConf + "# mine\n", "kubelet.conf, line 20,"},
		"no context":            {conf, "current-context: default-context", `current-context: ""`, "kubelet.conf, line 4,"},
		"no kubeconfig":         {conf, "", "]", "kubelet.conf"},
		"a flag in the drop-in": {dropIn, "kubelet.conf\"", "kubelet.conf --v=9\"", kubeadmDropIn + ", line 3,"},
		"another program":       {dropIn, "/usr/bin/kubelet ", "/usr/bin/env kubelet ", kubeadmDropIn + ", line 9,"},
		"a line more":           {dropIn, "", packagedDropIn + "Nice=5\n", kubeadmDropIn + ", line 10,"},
		"a line less":           {dropIn, "ExecStart=\n", "", kubeadmDropIn + ", line 8,"},
		"an empty drop-in":      {dropIn, "", "\n", kubeadmDropIn + ", line 2,"},
		"a flag elsewhere":      {"etc/default/kubelet", "", "\nKUBELET_EXTRA_ARGS=--kubeconfig=/root/other\n", "kubelet, line 2,"},
		"rotation elsewhere":    {"var/lib/kubelet/kubeadm-flags.env", "", "KUBELET_KUBEADM_ARGS=--rotate-certificates\n", "kubeadm-flags.env, line 1,"},
		"another ExecStart":     {dropIns + "20-mine.conf", "", "[Service]\nExecStart=\n", "20-mine.conf, line 2,"},
		"other arguments":       {dropIns + "20-mine.conf", "", "[Service]\n\nEnvironment=KUBELET_KUBECONFIG_ARGS=\n", "20-mine.conf, line 3,"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newPlainNode(t)
			text := row.with
			if row.old != "" {
				text = strings.Replace(n.get(row.file), row.old, row.with, 1)
			}
			if text == n.get(row.file) {
				t.Fatal("nothing differs")
			}
			n.put(row.file, text)
			before := n.tree()
			err := n.migration(func(step string) error { return errors.New("step " + step) }).run(t.Context())
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "nothing was changed") || strings.Contains(err.Error(), "secret-value") {
				t.Errorf("got %v", err)
			}
			for name, text := range n.tree() {
				if before[name] != text {
					t.Errorf("%s has changed", name)
				}
			}
		})
	}
}

// TestMigrateChangedMeanwhile: files that change while the operator decides are looked at again.
func TestMigrateChangedMeanwhile(t *testing.T) {
	n := newPlainNode(t)
	m := n.migration(nil)
	m.attester = meanwhile{n}
	n.approved.Store(false)
	n.approve = time.Millisecond
	if err := m.run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), "line 1,") {
		t.Errorf("got %v", err)
	}
}

type meanwhile struct{ *plainNode }

func (n meanwhile) Run(ctx context.Context) error {
	n.put("etc/kubernetes/kubelet.conf", "# new\n"+joinedConf)
	return n.plainNode.Run(ctx)
}

// TestMigrateTwice: of two runs at once, the second does nothing.
func TestMigrateTwice(t *testing.T) {
	n := newPlainNode(t)
	var second error
	testkit.NoError(t, n.migration(func(step string) error {
		if step == "wait" {
			second = n.migration(nil).run(t.Context())
		}
		return nil
	}).run(t.Context()))
	if !errors.Is(second, certstore.ErrLocked) {
		t.Errorf("got %v", second)
	}
	n.migrated(t)
}

// TestMigrateJournal: a journal of another release is refused, and nothing is put back by it.
func TestMigrateJournal(t *testing.T) {
	for _, text := range []string{"", "{", `{"phase":"later"}`, `{}`} {
		n := newPlainNode(t)
		n.put("state/migration.json", text)
		before, invocation := n.tree(), n.get("run/invocation")
		if err := n.migration(nil).run(t.Context()); err == nil || !strings.Contains(err.Error(), "migration.json") {
			t.Errorf("%q: got %v", text, err)
		}
		n.untouched(t, before, invocation)
	}
}

// TestMigrateService: a service that runs before a migration that fails goes on.
func TestMigrateService(t *testing.T) {
	n := newPlainNode(t)
	n.put("run/service", "active")
	n.broken = true
	if err := n.migration(nil).run(t.Context()); err == nil || n.get("run/service") == "" {
		t.Errorf("got %v, and the service %q", err, n.get("run/service"))
	}
	for _, refused := range []string{"show -P InvocationID kubelet", "show -P ActiveState kubelet-authenticator", "show -P ActiveState kubelet", "show -P LoadState kubelet",
		"show -P ExecStart kubelet-authenticator"} {
		before, invocation := n.tree(), n.get("run/invocation")
		m := n.migration(nil)
		m.systemctl = func(ctx context.Context, args ...string) (string, error) {
			if strings.Join(args, " ") == refused {
				return "", errors.New("no bus")
			}
			return n.systemctl(ctx, args...)
		}
		if err := m.run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing was changed") || n.get("run/service") == "" {
			t.Errorf("%s: got %v, and the service %q", refused, err, n.get("run/service"))
		}
		n.put("run/service", "")
		n.untouched(t, before, invocation)
		n.put("run/service", "active")
	}
}

func TestMigrateCommandLine(t *testing.T) {
	if err := migrate(t.Context(), nil, new(authenticator.Config), "", defaultConfig, nil, new(strings.Builder), new(strings.Builder)); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("without evidence: got %v", err)
	}
	for _, args := range [][]string{{"now"}, {"--timeout", "0s"}, {"--timeout", "soon"}, {"--ready-timeout", "0s"}, {"--force"}} {
		m := new(migration)
		if err := m.parse(args, new(strings.Builder)); exitStatus(err) != 2 {
			t.Errorf("%q: got %v", args, err)
		}
	}
}

// TestMigratePlugin: the kubelet starts the service's program, with the configuration file of the run.
func TestMigratePlugin(t *testing.T) {
	n := newPlainNode(t)
	m := n.migration(nil)
	m.configFile = "other.yaml"
	const program = "/usr/local/bin/kubelet-authenticator"
	if got := testkit.Must(m.plugin(t.Context())); len(got) != 4 || got[0] != program || got[1] != "--config" || !strings.HasSuffix(got[2], "/node/other.yaml") {
		t.Errorf("got %q", got)
	}
	for _, start := range []string{"", "{ path= ; argv[]= }", "{ path=kubelet-authenticator ; argv[]= }"} {
		m.systemctl = func(ctx context.Context, args ...string) (string, error) {
			if args[2] == "ExecStart" {
				return start, nil
			}
			return n.systemctl(ctx, args...)
		}
		if got, err := m.plugin(t.Context()); !errors.Is(err, checkMigrate) {
			t.Errorf("%q: got %q, %v", start, got, err)
		}
	}
}
