package externalsigner

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A process is a program that runs until the test ends, and may be started again.
type process struct {
	name string // of its log
	log  string
	path string
	dir  string // its working folder
	args []string
	env  []string // in addition to the test's
	// files are passed to the program, from the descriptor 3 on.
	files []*os.File
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended
}

// start runs a program. Its output goes to a file in dir, whose end is shown if the test fails.
func start(t *testing.T, program, dir string, args ...string) *process {
	t.Helper()
	name := filepath.Base(program)
	p := &process{name: name, log: filepath.Join(dir, name+".log"), path: program, dir: dir, args: args}
	p.launch(t)
	t.Cleanup(func() { controlplane.Stop(t, p.name, p.log, p.cmd, p.done) })
	return p
}

// launch starts the program, for the first time or again after it has ended. Its log goes on.
func (p *process) launch(t *testing.T) {
	t.Helper()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd, done := exec.Command(p.path, p.args...), make(chan struct{})
	cmd.Dir, cmd.Env, cmd.ExtraFiles = p.dir, append(os.Environ(), p.env...), p.files
	p.cmd, p.done = cmd, done
	if err := controlplane.Start(cmd, out, done); err != nil {
		t.Fatal(err)
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
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(controlplane.Patience):
		t.Fatalf("%s does not end; the end of its log:\n%s", p.name, controlplane.Tail(p.log))
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process without giving it a moment.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.done
}

func (p *process) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}
