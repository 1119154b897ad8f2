package mounttest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// inNamespace is set in the process that [Enter] starts.
const inNamespace = "NODEATTEST_MOUNT_NAMESPACE"

// Enter runs the test once more, in a process with a mount namespace of its own, and reports
// whether this is that process. It skips the test for a user who is not root.
func Enter(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) == t.Name() {
		testkit.NoError(t, syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace takes root")
	}
	again := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), inNamespace+"="+t.Name())
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := again.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skipf("a mount namespace takes root's rights: %v", err)
	case err != nil:
		t.Errorf("in a mount namespace: %v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP: "+t.Name()+" ")):
		t.Skipf("in a mount namespace: %s", out)
	}
	return false
}

// Mount mounts a file system on a new directory below dir.
func Mount(t testing.TB, dir, name, kind, options string) string {
	t.Helper()
	at := filepath.Join(dir, name)
	testkit.NoError(t, os.Mkdir(at, 0o700))
	mount(t, "none", at, kind, 0, options)
	testkit.NoError(t, os.Chmod(at, 0o700))
	return at
}

// Bind mounts a file or a directory on another one.
func Bind(t testing.TB, from, at string) {
	t.Helper()
	mount(t, from, at, "", syscall.MS_BIND, "")
}

func mount(t testing.TB, from, at, kind string, flags uintptr, options string) {
	t.Helper()
	if err := syscall.Mount(from, at, kind, flags, options); err != nil {
		t.Fatalf("mount of %s on %s: %v", kind, at, err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
}

// Overlay mounts an overlay below dir whose upper directory is in another one.
func Overlay(t testing.TB, dir, name, upper string) string {
	t.Helper()
	var options []string
	for _, layer := range []string{"lower", "upper", "work"} {
		at := filepath.Join(upper, name+", "+layer)
		testkit.NoError(t, os.Mkdir(at, 0o700))
		options = append(options, layer+"dir="+strings.ReplaceAll(at, ",", `\,`))
	}
	return Mount(t, dir, name, "overlay", strings.Join(options, ","))
}

// InMemory returns directories in memory, by kind: only after [Enter]. dir is on a disk.
func InMemory(t testing.TB, dir string) map[string]string {
	t.Helper()
	tmpfs, ramfs := Mount(t, dir, "tmpfs", "tmpfs", ""), Mount(t, dir, "ramfs", "ramfs", "")
	all := map[string]string{"tmpfs": tmpfs, "ramfs": ramfs,
		"overlay over tmpfs": Overlay(t, dir, "over-tmpfs", tmpfs), "overlay over ramfs": Overlay(t, dir, "over-ramfs", ramfs)}
	bound := func(name, of string) string {
		at := filepath.Join(dir, name)
		testkit.NoError(t, errors.Join(os.Mkdir(at, 0o700), os.MkdirAll(of, 0o700)))
		Bind(t, of, at)
		return at
	}
	all["bind mount of a tmpfs"] = bound("bound-tmpfs", filepath.Join(tmpfs, "bound"))
	all["bind mount of an overlay over tmpfs"] = bound("bound-overlay", filepath.Join(all["overlay over tmpfs"], "bound"))
	all["overlay over tmpfs, mounted on one over a disk"] = Overlay(t, Overlay(t, dir, "over-disk", dir), "on-it", tmpfs)
	return all
}
