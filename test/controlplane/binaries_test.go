package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReleases: the folder of each release is the one that scripts/kube-binaries.sh prints, and both
// refuse an unknown release with the list of those that they know.
func TestReleases(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	for _, name := range []string{binariesVar, releaseVar, kubeletVar} {
		t.Setenv(name, "")
	}
	want := map[string]string{
		"":        "kubernetes-v1.36.3-etcd-v3.6.8",
		"v1.35.4": "kubernetes-v1.35.4-etcd-v3.6.5",
		"v1.36.3": "kubernetes-v1.36.3-etcd-v3.6.8",
		"v1.37.2": "kubernetes-v1.37.2-etcd-v3.7.0",
	}
	for release, name := range want {
		dir := filepath.Join(cache, "nodeattest", name)
		pretend(t, dir)
		if got := releaseFolder(t, release); got != dir {
			t.Errorf("%q: got %s, want %s", release, got, dir)
		}
		t.Setenv(releaseVar, release)
		if got := Binaries(t); got != dir {
			t.Errorf("%s=%s: got %s, want %s", releaseVar, release, got, dir)
		}
		if out, err := exec.Command("../../scripts/kube-binaries.sh").Output(); err != nil || string(out) != dir+"\n" {
			t.Errorf("%s=%s kube-binaries.sh: got %s, %v, want %s", releaseVar, release, out, err, dir)
		}
	}
	t.Setenv(releaseVar, "v1.37.2")
	t.Setenv(kubeletVar, "v1.35.4")
	if got, want := Kubelet(t), filepath.Join(cache, "nodeattest", want["v1.35.4"], "kubelet"); got != want {
		t.Errorf("the kubelet is %s, want %s", got, want)
	}
	if got, want := BinariesOf(t, "v1.36.3"), filepath.Join(cache, "nodeattest", want["v1.36.3"]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	two, err := exec.Command("../../scripts/kube-binaries.sh", "v1.36.3", "v1.37.2").Output()
	if lines := strings.Fields(string(two)); err != nil || !slices.Equal(lines, []string{releaseFolder(t, "v1.36.3"), releaseFolder(t, "v1.37.2")}) {
		t.Errorf("two releases: got %s, %v", two, err)
	}
}

func TestUnknownRelease(t *testing.T) {
	const known = "Kubernetes v1.36.4: there are v1.36.3 v1.35.4 v1.37.2"
	if name, err := folderName(modules, "v1.36.4"); err == nil || !strings.Contains(err.Error(), known) {
		t.Errorf("got %s, %v, want %s", name, err, known)
	}
	cmd := exec.Command("../../scripts/kube-binaries.sh", "v1.36.3", "v1.36.4")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), known) {
		t.Errorf("got %s, %v, want %s", out, err, known)
	}
}

// pretend puts empty programs into a folder, so that nothing is built.
func pretend(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "kubectl", "kubelet"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
