package tpmsim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmsocket"
	"github.com/nodeattest/nodeattest/refusal"
)

// swtpmStartLimit is how long the swtpm process may take to listen.
const swtpmStartLimit = time.Minute

// Swtpm starts swtpm (https://github.com/stefanberger/swtpm) as a child process with its state
// in a new temporary folder, and provisions it as [Open] does the in-process simulator. Any
// number can run at once. Other programs, tpm2-tools for example, can talk to it between this
// program's commands: see [TPM.TCTI]. It is for tests: it skips the test if swtpm is not
// installed, fails it on any other error, Options.Seed among them, closes the TPM when the
// test ends, and logs swtpm's output if the test failed.
func Swtpm(t testing.TB, opts Options) *TPM {
	t.Helper()
	tpm, s, err := openSwtpm(opts)
	if errors.Is(err, errNoSwtpm) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, tpm)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("swtpm wrote:\n%s", s.wrote())
		}
	})
	return tpm
}

func openSwtpm(opts Options) (*TPM, *swtpm, error) {
	if opts.Seed != nil {
		return nil, nil, fmt.Errorf("tpmsim: %w: swtpm cannot be seeded; set CA for a certain CA", refusal.CheckConfig)
	}
	path, err := exec.LookPath("swtpm")
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoSwtpm, err)
	}
	// Not below a test's folder, whose name makes paths too long for a socket.
	dir, err := os.MkdirTemp("", "tpmsim")
	if err != nil {
		return nil, nil, fmt.Errorf("tpmsim: swtpm: %w", err)
	}
	s := &swtpm{path: path, dir: dir, socket: filepath.Join(dir, "tpm")}
	s.tpm = transport.FromReadWriteCloser(&tpmsocket.Socket{Path: s.socket, Limit: tpmsocket.CommandLimit})
	if err := s.start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("tpmsim: %w", err), os.RemoveAll(dir))
	}
	tpm, err := provision(&device{s.tpm, s.reset, s.close}, "swtpm:path="+s.socket, opts)
	return tpm, s, err
}

// swtpm is a running swtpm process.
type swtpm struct {
	path   string // the program
	dir    string // state, sockets and log
	socket string // TPM commands; the control channel is socket + ".ctrl"
	// tpm connects for each command, since swtpm serves one client at a time, and another
	// program may take its turn between two commands.
	tpm   transport.TPM
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has been waited for
}

// start runs the program and waits until it answers.
func (s *swtpm) start() error {
	s.cmd = exec.Command(s.path, "socket", "--tpm2",
		"--tpmstate", "dir="+s.dir,
		"--flags", "not-need-init,startup-clear",
		"--server", "type=unixio,path="+s.socket,
		"--ctrl", "type=unixio,path="+s.socket+".ctrl")
	log, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	endWithParent(s.cmd)
	started, ended := make(chan error, 1), make(chan struct{})
	s.ended = ended
	go func() { //goroutine: starts swtpm, and waits
		// The parent-death signal of endWithParent is tied to the thread that starts
		// the process, so that thread must live as long as the process does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // its output says more than its exit status
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start swtpm: %w", err)
	}
	for limit := time.After(swtpmStartLimit); ; {
		if c, err := net.Dial("unix", s.socket); err == nil {
			c.Close()
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("swtpm ended at its start (%v):\n%s", s.cmd.ProcessState, s.wrote())
		case <-limit:
			s.kill()
			return fmt.Errorf("swtpm does not listen after %v:\n%s", swtpmStartLimit, s.wrote())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *swtpm) reset() error {
	if _, err := (tpm2.Shutdown{ShutdownType: tpm2.TPMSUClear}).Execute(s.tpm); err != nil {
		return err
	}
	s.kill()
	for _, p := range []string{s.socket, s.socket + ".ctrl"} {
		if err := os.RemoveAll(p); err != nil {
			return err
		}
	}
	return s.start()
}

func (s *swtpm) log() string { return filepath.Join(s.dir, "log") }

// wrote returns the output of the process, without the line for every command.
func (s *swtpm) wrote() string {
	b, _ := os.ReadFile(s.log()) // without a log there was no output
	return strings.ReplaceAll(string(b), "swtpm: Data client disconnected\n", "")
}

// kill ends the process and waits for it.
func (s *swtpm) kill() {
	if s.cmd.Process != nil { // nil if a reset could not start it again
		_ = s.cmd.Process.Kill() // fails only if it has already ended
	}
	<-s.ended
}

func (s *swtpm) close() error {
	s.kill()
	return os.RemoveAll(s.dir)
}
