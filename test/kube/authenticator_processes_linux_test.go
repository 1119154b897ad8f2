package kube

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// asStranger has this program be a process with arguments of so many MiB.
const asStranger = "NODEATTEST_TEST_ARGUMENTS"

// mostHeld bounds the memory that the authenticator takes among hostile processes, in KiB.
const mostHeld = 64 << 10

// TestHostileProcesses renews among the processes of local users, in containers too, that
// call themselves kubelets, name files without end, or have arguments of 1 GiB: no certificate
// is renewed late, and the daemon's memory stays small. Then the node itself is hostile.
func TestHostileProcesses(t *testing.T) {
	if mib := os.Getenv(asStranger); mib != "" {
		layArguments(t, mib)
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it takes root to start the processes of others")
	}
	r := newRotation(t, false)
	text, err := os.ReadFile(r.node.config)
	var config map[string]any
	if err == nil {
		err = yaml.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	config["kubelet"].(map[string]any)["processes"] = true
	if text, err = yaml.Marshal(config); err == nil {
		err = os.WriteFile(r.node.config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}

	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	inside := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID, Credential: &syscall.Credential{},
		UidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}}}
	const gib = "1024"
	strangers := []int{
		stranger(t, "", &syscall.SysProcAttr{Credential: nobody}, "kubelet", "--bootstrap-kubeconfig=x"),
		stranger(t, "", &syscall.SysProcAttr{Credential: nobody}, "kubelet", "--config-dir="+filesWithoutEnd(t)),
		stranger(t, gib, &syscall.SysProcAttr{Credential: nobody}, "sleep"),
		stranger(t, gib, &syscall.SysProcAttr{Credential: nobody}, "kubelet"),
		stranger(t, gib, inside, "kubelet"),
		stranger(t, gib, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "kubelet"),
	}
	daemon := startAs(t, "daemon", r.node.program, r.node.dir, "--config", r.node.config, "daemon")
	r.renewed(t, 2*time.Minute)
	if daemon.ended() {
		t.Fatalf("the daemon has ended:\n%s", daemon.tail())
	}
	if held := mostResident(t, daemon.cmd.Process.Pid); held > mostHeld {
		t.Errorf("the daemon took %d KiB", held)
	} else {
		t.Logf("the daemon took %d KiB", held)
	}
	_, pair := r.node.credential(t)
	r.testNodeAttacks(t, r.node.name, r.withCertificate(t, pair))
	for _, command := range []string{"status", "rotate"} {
		out, held, err := measured(r.node.program, "-config", r.node.config, command)
		if err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
			continue
		}
		for _, pid := range strangers {
			if bytes.Contains(out, fmt.Appendf(nil, "process %d)", pid)) {
				t.Errorf("%s believes process %d:\n%s", command, pid, out)
			}
		}
		if held > mostHeld {
			t.Errorf("%s took %d KiB", command, held)
		}
	}
}

// measured runs a command and returns its output, and the most memory that it took, in KiB. Linux
// counts the parent's memory at the start, so a small process is put between.
func measured(command ...string) (out []byte, held int, err error) {
	const between = "import resource, subprocess, sys; r = subprocess.run(sys.argv[1:], stderr=subprocess.STDOUT)\n" +
		"print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(r.returncode)"
	cmd := exec.Command("python3", append([]string{"-c", between}, command...)...)
	printed := new(bytes.Buffer)
	cmd.Stderr = printed
	if out, err = cmd.Output(); err != nil {
		return out, 0, err
	}
	held, err = strconv.Atoi(strings.TrimSpace(printed.String()))
	return out, held, err
}

// stranger starts a process under a name, with these arguments or so many MiB of them.
func stranger(t *testing.T, mib string, attributes *syscall.SysProcAttr, name string, arguments ...string) int {
	t.Helper()
	cmd := &exec.Cmd{Path: "/bin/sh", Args: append([]string{name, "-c", "echo; read line", name}, arguments...), SysProcAttr: attributes}
	if mib != "" {
		cmd.Path, cmd.Args = "/proc/self/exe", []string{name, "-test.run=^TestHostileProcesses$"}
		cmd.Env = []string{asStranger + "=" + mib}
	}
	end, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = end.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line := make([]byte, 200)
	if n, err := said.Read(line); err != nil || mib != "" && string(line[:n]) != "ready\n" {
		t.Fatalf("a process of such arguments: %v, it says %q", err, line[:n])
	}
	if mib != "" { // its memory does not hold the shown files
		f, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if n, err := io.CopyN(io.Discard, f, 8<<20); err != nil {
			t.Fatalf("it shows %d bytes of arguments: %v", n, err)
		}
	}
	return cmd.Process.Pid
}

// layArguments moves the limits of this process's arguments over memory that is only reserved
// (PR_SET_MM_MAP of prctl(2)), as any process may.
func layArguments(t *testing.T, mib string) {
	n, err := strconv.Atoi(mib)
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(n) << 20
	area, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/stat") // proc_pid_stat(5); the third field comes after the name
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	field := func(n int) uint64 {
		v, err := strconv.ParseUint(fields[n-3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	brk, _, _ := unix.RawSyscall(unix.SYS_BRK, 0, 0, 0)
	base := uint64(uintptr(unsafe.Pointer(&area[0])))
	var m []byte // struct prctl_mm_map: code, data, heap, stack, arguments, environment, auxiliary vector
	for _, v := range []uint64{field(26), field(27), field(45), field(46), field(47), max(uint64(brk), field(47)), field(28), base, base + size, base + size, base + size, 0} {
		m = binary.NativeEndian.AppendUint64(m, v)
	}
	m = binary.NativeEndian.AppendUint32(m, 0)
	m = binary.NativeEndian.AppendUint32(m, 0xffffffff) // the program stays
	if err := unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), 0); err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// filesWithoutEnd is a folder with 20,000 names of a file of 0.9 MB that takes a while to read.
func filesWithoutEnd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "base")
	err := os.WriteFile(file, []byte("a: ["+strings.Repeat("{b: c},", 130_000)+"]\n"), 0o600)
	folder := filepath.Join(dir, "conf")
	err = errors.Join(err, os.Mkdir(folder, 0o700))
	for n := 0; err == nil && n < 20_000; n++ {
		err = os.Link(file, filepath.Join(folder, fmt.Sprintf("%05d.conf", n)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// mostResident is the most memory that a process has had, in KiB.
func mostResident(t *testing.T, pid int) int64 {
	t.Helper()
	text := controlplane.Read(t, fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "VmHWM:" {
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no VmHWM in %s", text)
	return 0
}
