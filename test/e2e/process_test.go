package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

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
	cmd.Dir = dir
	if err := controlplane.Start(cmd, out, p.done); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { controlplane.Stop(t, p.name, p.log, cmd, p.done) })
	return p
}

// ready waits until probe succeeds.
func (p *process) ready(t *testing.T, probe func() error) {
	t.Helper()
	controlplane.Ready(t, p.name, p.log, p.done, probe)
}
