package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A program is a process that is started again after it has ended, if it is to.
type program struct {
	c          *cluster
	name, path string
	metrics    string // the URL of its metrics, of a controller
	env, args  []string

	mu      sync.Mutex
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	stopped bool
	before  time.Duration // processor time of the processes before this one
}

// start starts a program whose output goes to a log in the cluster's folder, and ends it with the run.
func (c *cluster) start(name, path string, env []string, args ...string) *program {
	p := &program{c: c, name: name, path: path, env: env, args: args}
	c.check(p.launch())
	c.t.Cleanup(func() {
		p.mu.Lock()
		p.stopped = true
		cmd, done := p.cmd, p.done
		p.mu.Unlock()
		controlplane.Stop(c.t, p.name, p.log(), cmd, done)
	})
	return p
}

func (p *program) log() string { return filepath.Join(p.c.dir, p.name+".log") }

// launch starts the process, for the first time or again.
func (p *program) launch() error {
	out, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd, done := exec.Command(p.path, p.args...), make(chan struct{})
	cmd.Dir, cmd.Env = p.c.dir, append(os.Environ(), p.env...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.before += p.spent()
	}
	p.cmd, p.done = cmd, done
	p.stopped = false
	return controlplane.Start(cmd, out, done)
}

// ready waits until probe succeeds.
func (p *program) ready(probe func() error) {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	controlplane.Ready(p.c.t, p.name, p.log(), done, probe)
}

// stop ends the process at once, until launch.
func (p *program) stop() {
	p.mu.Lock()
	p.stopped = true
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	_ = cmd.Process.Kill() // it may have ended
	<-done
}

// crash ends the process at once, as a crash: keep starts it again.
func (p *program) crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Kill() // it may have ended
}

// keep starts the program again whenever it ends by itself, after a pause, as a kubelet does with a
// container.
func (p *program) keep(pause time.Duration) {
	go func() {
		for p.c.t.Context().Err() == nil {
			p.mu.Lock()
			cmd, done := p.cmd, p.done
			p.mu.Unlock()
			select {
			case <-p.c.t.Context().Done():
				return
			case <-done:
			}
			select {
			case <-p.c.t.Context().Done():
				return
			case <-time.After(pause):
			}
			p.mu.Lock()
			again := p.cmd == cmd && !p.stopped
			p.mu.Unlock()
			if again {
				_ = p.launch() // and if it fails, in the next turn
			}
		}
	}()
}
