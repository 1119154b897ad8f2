package node

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// parse reads a file with a kind of evidence.
func parse(t *testing.T, evidence string) *settings {
	t.Helper()
	s := testkit.Must(parseSettings([]byte("apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nevidence: {" + evidence + "}\n")))
	return s
}

// TestHostWithoutName: before a host has a name, its node has none.
func TestHostWithoutName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to name a host")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := syscall.Unshare(syscall.CLONE_NEWUTS); err != nil {
			t.Error(err)
			return
		}
		for host, want := range map[string]string{"localhost": "", "localhost.localdomain": "", "LOCALHOST": "", "localhost6.localdomain6": "", "(none)": "", "Node-1.example": "node-1.example", "localhost-1": "localhost-1"} {
			if err := syscall.Sethostname([]byte(host)); err != nil {
				t.Error(err)
			}
			c, err := parse(t, "tpm: {}").config(nil)
			if want == "" && !errors.Is(err, refusal.CheckConfig) || want != "" && (err != nil || c.NodeName != want) {
				t.Errorf("a host called %s: node %q, %v, want %q", host, c.NodeName, err, want)
			}
			named := parse(t, "tpm: {}")
			named.NodeName = "node-1"
			if c, err := named.config(nil); err != nil || c.NodeName != "node-1" {
				t.Errorf("a node with a name: got %q, %v", c.NodeName, err)
			}
		}
	}()
	<-done
}

// TestFilesOfSettings: a file with a password is its owner's, others may be read by all, and
// nothing waits for the writer of a FIFO.
func TestFilesOfSettings(t *testing.T) {
	dir := t.TempDir()
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	testkit.MustDo(syscall.Mkfifo(fifo, 0o600))
	for name, row := range map[string]struct {
		mode os.FileMode
		text string
		want error
	}{
		"a password":     {0o600, "hunter2\n", nil},
		"no end of line": {0o600, "hunter2", nil},
		"read by all":    {0o644, "hunter2\n", safefile.CheckFile},
		"written by all": {0o666, "hunter2\n", safefile.CheckFile},
		"too long":       {0o600, strings.Repeat("x", maxPassword+1), safefile.CheckFile},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.MustDo(errors.Join(os.WriteFile(file, []byte(row.text), 0o600), os.Chmod(file, row.mode)))
			s := parse(t, "tpm: {endorsementPasswordFile: "+file+"}")
			s.NodeName = "node-1"
			if _, err := s.config(nil); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
	testkit.MustDo(os.Chmod(file, 0o666))
	for _, path := range []string{fifo, file} {
		for name, read := range map[string]func() error{
			"a password":    func() error { _, err := parse(t, "tpm: {endorsementPasswordFile: "+path+"}").config(nil); return err },
			"intermediates": func() error { _, err := parse(t, "tpm: {intermediates: "+path+"}").config(nil); return err },
			"the event log": func() error { _, err := readEventLog(path)(t.Context()); return err },
			"a kubeconfig":  func() error { _, err := readKubeconfig(path); return err },
			"a kubeconfig's CA": func() error {
				_, err := readKubeconfig(kubeconfigIn(t, t.TempDir(), "certificate-authority: "+path, ""))
				return err
			},
			"its token": func() error {
				_, err := readKubeconfig(kubeconfigIn(t, t.TempDir(), "", "tokenFile: "+path))
				return err
			},
			"the settings": func() error { return run(t.Context(), []string{"--config", path, "status"}, nil, t.Output(), nil) },
		} {
			if err := read(); !errors.Is(err, safefile.CheckFile) {
				t.Errorf("%s of %s: got %v", name, filepath.Base(path), err)
			}
		}
	}
}
