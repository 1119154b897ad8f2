package controlplane

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Start starts a program that writes its output to a log, which it closes when the program has ended.
// Then it closes done. The kernel ends the program with this process, such as at the time limit of go test.
func Start(cmd *exec.Cmd, log *os.File, done chan<- struct{}) error {
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, dieWithParent()
	started := make(chan error, 1)
	go func() {
		// To the kernel the parent is the thread, which must not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return <-started
}

// Stop ends a program that [Start] has started, by an interrupt or, after ten seconds, by a kill. If the test
// has failed, it shows the end of the log.
func Stop(t testing.TB, name, log string, cmd *exec.Cmd, done <-chan struct{}) {
	t.Helper()
	_ = cmd.Process.Signal(os.Interrupt)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
	if t.Failed() {
		t.Logf("the end of the log of %s:\n%s", name, Tail(log))
	}
}

// handedOut are the ports that FreePorts has returned.
var handedOut sync.Map

// FreePorts finds free ports of 127.0.0.1, none of them twice, for tests that run in parallel. They are below
// the ports that the kernel gives to connections, so that a server that was killed finds its own again.
func FreePorts(t testing.TB, n int) []string {
	t.Helper()
	var ports []string
	for tries := 0; len(ports) < n; tries++ {
		port := strconv.Itoa(15000 + rand.N(15000))
		if _, taken := handedOut.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		switch {
		case err == nil:
			l.Close()
			ports = append(ports, port)
		case tries > 1000:
			t.Fatal(err)
		}
	}
	return ports
}
