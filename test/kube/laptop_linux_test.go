package kube

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// laptop runs a command of scripts/laptop.sh with a folder, and programs of a test before others.
func laptop(t *testing.T, dir, programs, command string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "laptop.sh"), command)
	cmd.Env = []string{"LAPTOP=" + dir, "HOME=" + dir, "PATH=" + programs + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestLaptopDown ends the script's processes, and no other process that has got one of their numbers.
func TestLaptopDown(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		recorded func(pid string) string
		ends     bool
	}{
		"a number alone":     {func(pid string) string { return pid }, false},
		"another start":      {func(pid string) string { return pid + " 1 " + bootID(t) }, false},
		"before a restart":   {func(pid string) string { return pid + " " + ticks(t, pid) + " another" }, false},
		"what it has itself": {func(pid string) string { return pid + " " + ticks(t, pid) + " " + bootID(t) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			victim := exec.CommandContext(ctx, "sleep", "1000")
			victim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			pid := strconv.Itoa(victim.Process.Pid)
			controlplane.Write(t, dir, "etcd.pid", []byte(row.recorded(pid)+"\n"))
			if out, err := laptop(t, dir, "", "down"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if !row.ends {
				cancel()
			}
			err := victim.Wait()
			if ended, ok := errors.AsType[*exec.ExitError](err); !ok || (ended.Error() == "signal: terminated") != row.ends {
				t.Errorf("it ended with %v, want it ended by the script: %t", err, row.ends)
			}
			if _, err := os.Stat(filepath.Join(dir, "etcd.pid")); err == nil {
				t.Error("its file is left")
			}
		})
	}
}

func bootID(t *testing.T) string {
	t.Helper()
	text := controlplane.Read(t, "/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// ticks is when a process was started.
func ticks(t *testing.T, pid string) string {
	t.Helper()
	text := controlplane.Read(t, "/proc/"+pid+"/stat")
	return strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))[19]
}

// TestLaptopFails has commands of the script fail where there is nothing to ask, or it has no
// answer.
func TestLaptopFails(t *testing.T) {
	t.Parallel()
	programs := t.TempDir()
	for name, script := range map[string]string{
		"kubectl": "#!/bin/sh\ncase \"$*\" in *token*|*whoami*) exit 1;; esac\n",
		"kubeadm": "#!/bin/sh\nexit 1\n", "node-attestation-controller": "#!/bin/sh\nexec sleep 1000\n",
	} {
		if err := os.Chmod(controlplane.Write(t, programs, name, []byte(script)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"up", "controller", "node", "thief"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "deploy"), 0o700); err != nil {
			t.Fatal(err)
		}
		out, err := laptop(t, dir, programs, command)
		if err == nil {
			t.Errorf("%s comes to its end:\n%s", command, out)
		}
		if started, _ := filepath.Glob(filepath.Join(dir, "*.pid")); len(started) != 0 {
			t.Errorf("%s has started %q", command, started)
			_, _ = laptop(t, dir, programs, "down")
		}
	}
}
