// Package controlplane has helpers of tests that start a control plane: a
// cluster's CA, and the folder of the programs that scripts/kube-binaries.sh builds.
package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	// binariesVar names a folder with programs to use instead of the ones that
	// scripts/kube-binaries.sh builds.
	binariesVar = "NODEATTEST_KUBE_BIN"
	// releaseVar is the release of Kubernetes that tests run, such as v1.37.2, instead of the one that
	// test/kubernetes/go.mod requires.
	releaseVar = "NODEATTEST_KUBE"
	// kubeletVar is the release of the kubelet, instead of the control plane's.
	kubeletVar = "NODEATTEST_KUBELET"
)

// modules is the folder whose go*.mod files require a release of Kubernetes each.
var modules = filepath.Join("..", "kubernetes")

// Binaries returns the folder of the programs of the release that is tested. Without them it skips the
// test.
func Binaries(t testing.TB) string {
	t.Helper()
	return built(t, binariesFolder(t), "scripts/kube-binaries.sh")
}

// BinariesOf returns the folder of the programs of a release, such as v1.37.2, whichever is tested.
// Without them it skips the test. A release that no go.mod requires fails it.
func BinariesOf(t testing.TB, release string) string {
	t.Helper()
	return built(t, releaseFolder(t, release), "scripts/kube-binaries.sh "+release)
}

func built(t testing.TB, dir, by string) string {
	t.Helper()
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kubeadm", "etcd"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 == 0 {
			t.Skipf("no program %s in %s; to build it, run in the repository: %s", name, dir, by)
		}
	}
	return dir
}

// binariesFolder is the folder of the programs of the release that is tested, whether it is there or
// not.
func binariesFolder(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(binariesVar); dir != "" {
		return dir
	}
	return releaseFolder(t, os.Getenv(releaseVar))
}

// Kubelet is the path of the kubelet that is tested, whether it is there or not.
func Kubelet(t testing.TB) string {
	t.Helper()
	dir := binariesFolder(t)
	if release := os.Getenv(kubeletVar); release != "" {
		dir = releaseFolder(t, release)
	}
	return filepath.Join(dir, "kubelet")
}

func releaseFolder(t testing.TB, release string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	name, err := folderName(modules, release)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "nodeattest", name)
}

// folderName is the name of the folder of a release, as scripts/kube-binaries.sh has it. The release ""
// is that of go.mod.
func folderName(modules, release string) (string, error) {
	files, err := filepath.Glob(filepath.Join(modules, "go[0-9]*.mod"))
	if err != nil {
		return "", err
	}
	var known []string
	for _, file := range append([]string{filepath.Join(modules, "go.mod")}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		kubernetes, err := pin(file, text, "k8s.io/kubernetes")
		if err != nil {
			return "", err
		}
		if release == "" || release == kubernetes {
			etcd, err := pin(file, text, "go.etcd.io/etcd/server/v3")
			return "kubernetes-" + kubernetes + "-etcd-" + etcd, err
		}
		known = append(known, kubernetes)
	}
	return "", fmt.Errorf("no go.mod in %s requires Kubernetes %s: there are %s", modules, release, strings.Join(known, " "))
}

// pin is the version of a module that a go.mod requires.
func pin(name string, file []byte, module string) (string, error) {
	m := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(file)
	if m == nil {
		return "", fmt.Errorf("%s requires no version of %s", name, module)
	}
	return string(m[1]), nil
}
