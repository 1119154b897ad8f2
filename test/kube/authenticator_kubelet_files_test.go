package kube

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// TestKubeletFiles has a kubelet read configurations: what it makes of them is what the
// authenticator says.
func TestKubeletFiles(t *testing.T) {
	kubeletNeeds(t)
	const head, on, off = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "rotateCertificates: true\n", "rotateCertificates: false\n"
	for name, files := range map[string]map[string]string{
		"off":                         {"config.yaml": off},
		"on":                          {"config.yaml": on},
		"twice":                       {"config.yaml": on + off},
		"in another spelling":         {"config.yaml": "RotateCertificates: true\n"},
		"off in another spelling":     {"config.yaml": on + "rotatecertificates: false\n"},
		"off in a folder behind":      {"config.yaml": off, "d/10.conf": on, "d/50-vendor/10.conf": off},
		"on in a folder behind":       {"config.yaml": off, "d/90.conf": off, "d/95-vendor/x/10.conf": on},
		"in a folder of such a name":  {"config.yaml": off, "d/x.conf/10.conf": on},
		"no drop-in":                  {"config.yaml": off, "d/90.yaml": on},
		"removed":                     {"config.yaml": on, "d/90.conf": "rotateCertificates: null\n"},
		"removed in another spelling": {"config.yaml": on, "d/90.conf": "RotateCertificates: null\n"},
		"on in a drop-in's spelling":  {"config.yaml": off, "d/90.conf": "RotateCertificates: true\n"},
		"off in a drop-in's spelling": {"config.yaml": on, "d/90.conf": "rotatecertificates: false\n"},
		"twice in a drop-in":          {"config.yaml": off, "d/90.conf": on + off},
		"by a link":                   {"config.yaml": off, "real": on, "d/90.conf": "->real"},
		"in a folder that is a link":  {"config.yaml": off, "real/90.conf": on, "d": "->real"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range files {
				path := filepath.Join(dir, file)
				err := os.MkdirAll(filepath.Dir(path), 0o700)
				if target, ok := strings.CutPrefix(text, "->"); ok {
					_ = os.Remove(path) // the empty folder
					err = errors.Join(err, os.Symlink(filepath.Join(dir, target), path))
				} else {
					err = errors.Join(err, os.WriteFile(path, []byte(head+"failCgroupV1: false\ncontainerRuntimeEndpoint: unix:///none\n"+text), 0o600))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			config, drops := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "d")
			want := kubeletRotates(t, dir, config, drops)
			err := (&authenticator.Kubelet{ConfigFile: config, ConfigDir: drops}).Check()
			got := "false"
			switch {
			case errors.Is(err, refusal.Check("kubelet-configuration")):
				got = "true"
			case err != nil:
				got = ""
			}
			if got != want {
				t.Errorf("got %q, %v; the kubelet says %q", got, err, want)
			}
		})
	}
}

// kubeletRotates starts a kubelet, and ends it when it has logged what its configuration is:
// whether it rotates certificates, or "" if it refuses the files.
func kubeletRotates(t *testing.T, dir, config, drops string) (rotates string) {
	t.Helper()
	cmd := exec.Command("unshare", "-m", "-n", "-p", "-f", "--kill-child", filepath.Join(controlplane.BinariesFolder(t), "kubelet"), "--config="+config, "--config-dir="+drops,
		"--root-dir="+filepath.Join(dir, "root"), "--cert-dir="+filepath.Join(dir, "pki"), "-v=5")
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(log); rotates == "" && lines.Scan(); {
		if _, value, ok := strings.Cut(lines.Text(), `"RotateCertificates": `); ok {
			rotates = strings.Trim(value, ",")
		}
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, log)
	_ = cmd.Wait()
	return rotates
}
