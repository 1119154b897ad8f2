// Package controlplane has helpers of tests that start a control plane: a
// cluster's CA, and the folder of the programs that scripts/kube-binaries.sh builds.
package controlplane

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// binariesVar names a folder with programs to use instead of the ones that
// scripts/kube-binaries.sh builds.
const binariesVar = "NODEATTEST_KUBE_BIN"

// Binaries returns the folder of the programs. Without them it skips the test.
func Binaries(t *testing.T) string {
	t.Helper()
	dir := BinariesFolder(t)
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kubeadm", "etcd"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 == 0 {
			t.Skipf("no program %s in %s; to build it, run in the repository: scripts/kube-binaries.sh", name, dir)
		}
	}
	return dir
}

// BinariesFolder is the folder of the programs, whether it is there or not.
func BinariesFolder(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(binariesVar); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := os.ReadFile(filepath.Join("..", "kubernetes", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "nodeattest", "kubernetes-"+pin(t, pinned, "k8s.io/kubernetes")+
		"-etcd-"+pin(t, pinned, "go.etcd.io/etcd/server/v3"))
}

// pin is the version of a module that a go.mod requires.
func pin(t *testing.T, file []byte, module string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(file)
	if m == nil {
		t.Fatalf("test/kubernetes/go.mod requires no version of %s", module)
	}
	return string(m[1])
}
