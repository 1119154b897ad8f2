package kube

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A process is a program that runs until the test ends.
type process struct {
	name string
	log  string
	path string
	dir  string
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start runs a program. Its output goes to a file, whose end is shown if the test
// fails.
func start(t *testing.T, program, dir string, args ...string) *process {
	t.Helper()
	return startAs(t, filepath.Base(program), program, dir, args...)
}

// startAs starts a program under a name of its own, for its log.
func startAs(t *testing.T, name, program, dir string, args ...string) *process {
	t.Helper()
	p := &process{name: name, log: filepath.Join(dir, name+".log"), path: program, dir: dir, args: args}
	if err := p.launch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(os.Interrupt)
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", p.name, p.tail())
		}
	})
	return p
}

// launch starts the program, for the first time or again after it has ended. Its log goes
// on.
func (p *process) launch() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd, done := exec.Command(p.path, p.args...), make(chan struct{})
	// As with API servers that stream no lists: each program lists and watches.
	cmd.Env = append(os.Environ(), "KUBE_FEATURE_WatchListClient=false")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.dir, out, out, dieWithParent()
	p.cmd, p.done = cmd, done
	started := make(chan error, 1)
	go func() {
		// To the kernel the parent is the thread, which must not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		defer out.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return <-started
}

// ended says whether it has.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ready waits until probe succeeds.
func (p *process) ready(t *testing.T, probe func() error) {
	t.Helper()
	controlplane.Ready(t, p.name, p.log, p.done, probe)
}

// stop asks the process to end, waits, and returns its exit status.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%s does not end; the end of its log:\n%s", p.name, p.tail())
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process without giving it a moment.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
}

// text is the whole log.
func (p *process) text(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tail is the last lines of the log.
func (p *process) tail() []byte { return controlplane.Tail(p.log) }

// handedOut are the ports that tests of this process have got.
var handedOut sync.Map

// freePorts finds free ports of 127.0.0.1, none of them twice, for tests
// that run in parallel. They are below those that the kernel gives to connections, so that
// a server which was killed finds its own again.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for tries := 0; len(ports) < n; tries++ {
		port := strconv.Itoa(15000 + rand.N(15000))
		if _, taken := handedOut.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			if tries > 1000 {
				t.Fatal(err)
			}
			continue
		}
		l.Close()
		ports = append(ports, port)
	}
	return ports
}
