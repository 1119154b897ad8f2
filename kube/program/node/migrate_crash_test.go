package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// crash ends the process at a step, counted from 0, as a loss of power does: deferred calls of the program
// change no file.
type crash int

// interrupted runs a migration that ends at a step, and reports whether it came so far.
func (n *plainNode) interrupted(t *testing.T, at int) (name string, ended bool) {
	t.Helper()
	defer func() {
		if c := recover(); c != nil && c != crash(at) {
			panic(c)
		}
	}()
	count := 0
	_ = n.migration(func(step string) error {
		if count++; count == at+1 {
			name, ended = step, true
			panic(crash(at))
		}
		return nil
	}).run(t.Context())
	return name, ended
}

// TestMigrateInterrupted: after a kill or a loss of power at each step, in a migration and in one that is
// put back, a new start puts everything back or goes on.
func TestMigrateInterrupted(t *testing.T) {
	for _, broken := range []bool{false, true} {
		for _, power := range []bool{false, true} {
			for _, undo := range []bool{false, true} {
				t.Run(fmt.Sprintf("broken %t, power %t, undo %t", broken, power, undo), func(t *testing.T) {
					steps := 0
					for ; ; steps++ {
						n := newPlainNode(t)
						n.broken = broken
						before := n.tree()
						name, ended := n.interrupted(t, steps)
						if !ended {
							break
						}
						done := strings.Contains(n.get("state/migration.json"), phaseReady)
						if power {
							testkit.MustDo(remove(n.path("run/service")))
							n.start()
						}
						if running := n.files(); strings.Contains(running, "bootstrap-kubeconfig=") && strings.Contains(running, "- credential") {
							t.Errorf("%s: the kubelet would start with one new file and ask for a certificate without evidence", name)
						}
						m := n.migration(nil)
						m.undo = undo
						err := m.run(t.Context())
						if t.Logf("%d %s: done %t, %v", steps, name, done, err); done || !broken && !undo {
							testkit.NoError(t, err)
							if power && done { // the machine started with the new files, and their service
								n.put("run/service", "active")
							}
							n.migrated(t)
						} else {
							n.untouched(t, before, "")
						}
						if t.Failed() {
							t.Fatalf("after %s", name)
						}
					}
					if steps < 12 {
						t.Errorf("%d steps", steps)
					}
				})
			}
		}
	}
}

// TestMigrateKilled is TestMigrateInterrupted with processes that SIGKILL ends.
func TestMigrateKilled(t *testing.T) {
	const variable = "NODEATTEST_MIGRATE_KILLED"
	if dir, step, ok := strings.Cut(os.Getenv(variable), "|"); ok {
		n := &plainNode{dir: dir}
		n.approved.Store(true)
		at, count := testkit.Must(strconv.Atoi(step)), 0
		_ = n.migration(func(string) error {
			if count++; count == at+1 {
				testkit.MustDo(testkit.Must(os.FindProcess(os.Getpid())).Kill())
				select {}
			}
			return nil
		}).run(t.Context())
		return
	}
	for step := 0; ; step++ {
		n := newPlainNode(t)
		before, invocation := n.tree(), n.get("run/invocation")
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestMigrateKilled$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d", variable, n.dir, step))
		if out, err := child.CombinedOutput(); err == nil {
			if n.migrated(t); step < 12 {
				t.Errorf("it ends after %d steps: %s", step, out)
			}
			return
		}
		done := strings.Contains(n.get("state/migration.json"), phaseReady)
		if n.get("run/invocation") != invocation {
			invocation = ""
		}
		m := n.migration(nil)
		m.undo = true
		testkit.NoError(t, m.run(t.Context()))
		if done {
			n.migrated(t)
		} else {
			n.untouched(t, before, invocation)
		}
	}
}

// TestMigrateFullDisk has the disk full from each step on: links and renames still work there.
func TestMigrateFullDisk(t *testing.T) {
	for from := range 8 {
		n := newPlainNode(t)
		before, invocation, writes := n.tree(), n.get("run/invocation"), 0
		restarted, undone := false, false
		err := n.migration(func(step string) error {
			undone = undone || strings.HasPrefix(step, "put back")
			restarted = restarted || step == "systemctl restart kubelet" && !undone
			if !strings.HasPrefix(step, "journal") && !strings.HasPrefix(step, "stage") {
				return nil
			}
			if writes++; writes > from {
				return syscall.ENOSPC
			}
			return nil
		}).run(t.Context())
		if err == nil {
			if n.migrated(t); from != 4 {
				t.Errorf("it ends after %d writes", from)
			}
			return
		}
		want := "everything is put back"
		if from == 0 {
			want = "nothing was changed"
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), want) {
			t.Errorf("after %d writes: %v", from, err)
		}
		if restarted {
			invocation = ""
		}
		n.untouched(t, before, invocation)
	}
}

// TestMigrateEachError has each step fail once.
func TestMigrateEachError(t *testing.T) {
	failure := errors.New("no such luck")
	for at := 0; ; at++ {
		n := newPlainNode(t)
		before, count, name := n.tree(), 0, ""
		err := n.migration(func(step string) error {
			if count++; count == at+1 {
				name = step
				return failure
			}
			return nil
		}).run(t.Context())
		if name == "" {
			if at < 12 {
				t.Errorf("%d steps", at)
			}
			return
		}
		if t.Logf("%d %s: %v", at, name, err); !errors.Is(err, failure) || exitStatus(err) != 1 {
			t.Errorf("%s: got %v", name, err)
		}
		if n.get("state/migration.json") == "" {
			n.untouched(t, before, "")
			continue
		}
		testkit.NoError(t, n.migration(nil).run(t.Context()))
		n.migrated(t)
	}
}
