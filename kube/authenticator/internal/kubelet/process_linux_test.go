package kubelet

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestRunning looks at the kubelets that run. A process of another user, or that calls itself a
// kubelet in a container, is ignored.
func TestRunning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to start the processes of others")
	}
	dir := testkit.Must(os.MkdirTemp("", "")) // others may read it
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	setuid := filepath.Join(dir, "setuid")
	shell, err := os.ReadFile("/bin/sh")
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(setuid, shell, 0o600), os.Chmod(setuid, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	for name, row := range map[string]struct {
		cmd  exec.Cmd
		want bool
	}{
		"root's":                            {exec.Cmd{}, true},
		"root's, of another name":           {exec.Cmd{Args: []string{"kubelets"}}, false},
		"root's, in another folder":         {exec.Cmd{Args: []string{"/opt/bin/kubelet"}}, true},
		"root's, of two words":              {exec.Cmd{Args: []string{"hyperkube"}}, true},
		"another user's":                    {exec.Cmd{SysProcAttr: &syscall.SysProcAttr{Credential: nobody}}, false},
		"another user's, of a root program": {exec.Cmd{Path: setuid, SysProcAttr: &syscall.SysProcAttr{Credential: nobody}}, false},
		"root's in a container":             {exec.Cmd{SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}}, false},
		"another user's, root in a container": {exec.Cmd{SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID, Credential: &syscall.Credential{},
			UidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := row.cmd
			if cmd.Path == "" {
				cmd.Path = "/bin/sh"
			}
			if cmd.Args == nil {
				cmd.Args = []string{"kubelet"}
			}
			cmd.Args = append(cmd.Args, "-p", "-c", "echo; read line", "kubelet", "--config", t.Name())
			start(t, &cmd)
			believed := false
			for pid, f := range Running() {
				if pid == cmd.Process.Pid {
					believed = true
					if f.Config != t.Name() {
						t.Errorf("its flags are %+v", f)
					}
				}
			}
			if believed != row.want {
				t.Errorf("it is believed: %t", believed)
			}
		})
	}
}

// start starts a shell that says when it has its arguments, and waits until the test ends.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	end := testkit.Must(cmd.StdinPipe())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(end.Close(), cmd.Wait()) })
}

// TestProcess: no more of the arguments is read than a kubelet has.
func TestProcess(t *testing.T) {
	for name, row := range map[string]struct {
		bytes int
		cut   bool
	}{"all": {maxArguments - 1, false}, "one more": {maxArguments, true}, "many more": {8 * maxArguments, true}} {
		t.Run(name, func(t *testing.T) {
			arguments := []string{"kubelet", "-c", "echo; read line", "--bootstrap-kubeconfig=/b"}
			for rest := row.bytes - len(strings.Join(arguments, "\x00")); rest > 0; rest -= 1 << 10 {
				arguments = append(arguments, strings.Repeat("x", min(rest, 1<<10)-1)) // each has a zero before it
			}
			cmd := &exec.Cmd{Path: "/bin/sh", Args: arguments}
			start(t, cmd)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f := Process(cmd.Process.Pid)
			runtime.ReadMemStats(&after)
			if f == nil || f.Cut != row.cut || f.Bootstrap != "/b" {
				t.Errorf("got %+v", f)
			}
			if held := after.TotalAlloc - before.TotalAlloc; held > 16*maxArguments {
				t.Errorf("%d bytes were allocated for it", held)
			}
		})
	}
	if f := Process(0); f != nil {
		t.Errorf("no process: got %+v", f)
	}
}
