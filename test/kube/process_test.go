package kube

import (
	"os"
	"os/exec"
	"path/filepath"
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
	t.Cleanup(func() { controlplane.Stop(t, p.name, p.log, p.cmd, p.done) })
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
	cmd.Dir = p.dir
	p.cmd, p.done = cmd, done
	return controlplane.Start(cmd, out, done)
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
	text := controlplane.Read(t, p.log)
	return string(text)
}

// tail is the last lines of the log.
func (p *process) tail() []byte { return controlplane.Tail(p.log) }
