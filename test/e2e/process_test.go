package e2e

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A process is a program that runs until the test ends.
type process struct {
	name string
	log  string
	done chan struct{} // closed when it has ended
}

// start runs a program. Its output goes to a file, whose end is shown if the test
// fails.
func start(t *testing.T, program, dir string, args ...string) *process {
	t.Helper()
	p := &process{name: filepath.Base(program), done: make(chan struct{})}
	p.log = filepath.Join(dir, p.name+".log")
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, out, out, dieWithParent()
	started := make(chan error, 1)
	go func() {
		// To the kernel the parent is the thread, which must not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer out.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", p.name, controlplane.Tail(p.log))
		}
	})
	return p
}

// ready waits until probe succeeds.
func (p *process) ready(t *testing.T, probe func() error) {
	t.Helper()
	controlplane.Ready(t, p.name, p.log, p.done, probe)
}

var lastPort = 5000 + rand.N(5000)

// freePorts finds free ports of 127.0.0.1, none of them twice. They are
// below those that the kernel gives to connections: no connection takes one before its server does.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for last := lastPort + 5000; len(ports) < n; {
		lastPort++
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lastPort)))
		switch {
		case err == nil:
			l.Close()
			ports = append(ports, strconv.Itoa(lastPort))
		case lastPort == last:
			t.Fatal(err)
		}
	}
	return ports
}
