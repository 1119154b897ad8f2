package kubeadmpatch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rendered is kube-apiserver's manifest as kubeadm 1.36.3 renders it.
const rendered = "testdata/kube-apiserver.yaml"

// golden is its patch.
const golden = "testdata/patch.yaml"

// TestRun: the command, its files and its statuses.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	manifest := read(t, rendered)
	full := append(bytes.Clone(manifest), bytes.Repeat([]byte("#"), maxSize-len(manifest))...)
	want := string(read(t, golden))
	for name, row := range map[string]struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		"a manifest":          {[]string{rendered}, 0, want, ""},
		"the default socket":  {[]string{"--socket", "/run/external-jwt-signer/socket", rendered}, 0, want, ""},
		"as large as may be":  {[]string{write("full", full)}, 0, want, ""},
		"help":                {[]string{"-h"}, 0, "", "[--socket PATH] MANIFEST"},
		"no manifest":         {nil, 2, "", "[--socket PATH] MANIFEST"},
		"two manifests":       {[]string{rendered, rendered}, 2, "", "[--socket PATH] MANIFEST"},
		"an unknown flag":     {[]string{"--undo", rendered}, 2, "", "-undo"},
		"too large":           {[]string{write("large", append(full, '#'))}, 1, "", "large: more than 262144 bytes"},
		"no file":             {[]string{filepath.Join(dir, "gone")}, 1, "", "gone: no such file"},
		"a folder":            {[]string{dir}, 1, "", "want a regular file"},
		"no manifest in it":   {[]string{write("empty", nil)}, 1, "", "empty: not an object"},
		"a terminal's escape": {[]string{write("escape", []byte("kind: \"\x1b[2J\"\n"))}, 1, "", "escape: "},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := Run(row.args, &stdout, &stderr); got != row.status || stdout.String() != row.stdout || !strings.Contains(stderr.String(), row.stderr) {
				t.Errorf("got %d, stdout %s, stderr %s", got, &stdout, &stderr)
			}
			if row.status == 1 && !strings.HasPrefix(stderr.String(), "external-jwt-signer kubeadm-patch: ") || strings.Contains(stderr.String(), "\x1b") {
				t.Errorf("stderr %q", &stderr)
			}
		})
	}
	if got := Run([]string{rendered}, fullDisk{}, new(bytes.Buffer)); got != 1 {
		t.Errorf("stdout on a full disk: got status %d", got)
	}
}

// fullDisk is an output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, os.ErrInvalid }

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
