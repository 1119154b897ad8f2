package kube

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// skewVar names the file that says by how many seconds the clock of a skewed program is wrong.
const skewVar = "NODEATTEST_TEST_SKEW"

// skewedNow takes the place of time.Now, which is rightNow then. It may be called where there can
// be no system call, by the runtime's timers: the file is mapped.
const skewedNow = `package time

import (
	"syscall"
	"unsafe"
)

var skew = mapSkew()

func mapSkew() *int64 {
	file, ok := syscall.Getenv("` + skewVar + `")
	if !ok {
		return new(int64)
	}
	f, err := syscall.Open(file, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	m, err := syscall.Mmap(f, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&m[0]))
}

func Now() Time {
	t := rightNow()
	if skew != nil { // not while packages are initialized
		t.wall += uint64(*skew) << nsecShift // the monotonic clock is right
	}
	return t
}
`

// buildSkewed builds the authenticator with a clock that can be set.
func buildSkewed(t *testing.T) string {
	t.Helper()
	dir, module := t.TempDir(), filepath.Join("..", "..", "kube")
	run := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = module
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
		return strings.TrimSpace(string(out))
	}
	source := filepath.Join(run("env", "GOROOT"), "src", "time")
	text := controlplane.Read(t, filepath.Join(source, "time.go"))
	before, after, ok := strings.Cut(string(text), "\nfunc Now() Time {")
	if !ok {
		t.Fatal("package time has no Now")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(source, "time.go"):   controlplane.Write(t, dir, "time.go", []byte(before+"\nfunc rightNow() Time {"+after)),
		filepath.Join(source, "skewed.go"): controlplane.Write(t, dir, "skewed.go", []byte(skewedNow)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "kubelet-authenticator")
	run("build", "-overlay", controlplane.Write(t, dir, "overlay.json", overlay), "-o", program, "./cmd/kubelet-authenticator")
	return program
}

// TestSkew has the machine's clock be wrong, before it has a certificate or later, and then set
// right: the node comes up, with few attempts and few lines in the log. The cluster is older than
// a month. Where the clock is years ahead, the API server's certificate has ended.
func TestSkew(t *testing.T) {
	t.Parallel()
	program := buildSkewed(t)
	c := startJoinable(t)
	ca := newCA(t, "")
	const ahead, back = 10 * 365 * 24 * time.Hour, -30 * 24 * time.Hour
	rows := map[string]struct {
		skew time.Duration
		// joined says that the node has a certificate before the clock is wrong, and restarted
		// that the daemon does not run when it is set right.
		joined, restarted bool
	}{
		"ahead":                {skew: ahead},
		"ahead-restarted":      {skew: ahead, restarted: true},
		"joined-ahead":         {skew: ahead, joined: true},
		"back":                 {skew: back},
		"back-restarted":       {skew: back, restarted: true},
		"joined-back":          {skew: back, joined: true},
		"joined-and-restarted": {skew: back, joined: true, restarted: true},
	}
	c.firstUse(t, tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), slices.Collect(maps.Keys(rows))...)
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := c.install(t, program, name, tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true}), nil)
			file, err := os.Create(filepath.Join(m.dir, "skew"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			set := func(skew time.Duration) {
				if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(skew/time.Second)), 0); err != nil {
					t.Fatal(err)
				}
			}
			set(0)
			m.program = controlplane.Write(t, m.dir, "skewed.sh", fmt.Appendf(nil, "#!/bin/sh\n%s=%s exec %s \"$@\"\n", skewVar, file.Name(), program))
			if err := os.Chmod(m.program, 0o700); err != nil {
				t.Fatal(err)
			}
			if !row.joined {
				set(row.skew)
			}
			daemon := startAs(t, "daemon", m.program, m.dir, "--config", m.config, "daemon")
			attempts := func() (failed, succeeded int) {
				return len(failures(t, daemon)), strings.Count(daemon.text(t), `msg="certificate obtained"`)
			}
			wait := func(failures, successes int) {
				t.Helper()
				eventually(t, func() error {
					if failed, succeeded := attempts(); failed < failures || succeeded < successes {
						return fmt.Errorf("%d attempts failed, want %d, and %d succeeded, want %d", failed, failures, succeeded, successes)
					}
					return nil
				})
			}
			had := 0
			if row.joined {
				wait(0, 1)
				had = 1
				set(row.skew)
			}
			if row.skew == ahead {
				wait(3, had)
			} else {
				wait(0, had+1) // whatever there was has come from the future
			}
			if row.restarted {
				daemon.stop(t)
			}
			set(0)
			began := time.Now().Truncate(time.Second)
			if row.restarted {
				if err := daemon.launch(); err != nil {
					t.Fatal(err)
				}
			}
			if row.skew == ahead {
				wait(3, 1)
			} else {
				wait(0, had+2) // by the clock, what came is a month old
			}
			if _, pair := m.credential(t); time.Now().After(pair.Leaf.NotAfter) {
				t.Errorf("a certificate that ended at %s", pair.Leaf.NotAfter)
			}
			eventually(t, func() error { // its sign of life may be one of the other time
				if !m.status(t).Daemon {
					return errNotYet
				}
				return nil
			})
			s := m.status(t)
			if !s.Usable || s.Certificates[0].Renew.After(time.Now().Add(time.Hour)) || !row.joined && s.Certificates[0].Received.Before(began) {
				t.Errorf("status %+v", s)
			}
			failed, succeeded := attempts()
			lines := strings.Count(daemon.text(t), "\n")
			if failed+succeeded-had > 5 || lines > 20 {
				t.Errorf("%d attempts and %d lines", failed+succeeded-had, lines)
			}
			t.Logf("%d attempts failed, %d succeeded, %d lines", failed, succeeded, lines)
		})
	}
}
