package kube

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// TestPrograms runs every command of the page on programs on a clone of this very tree, with a
// folder of its own for /usr/local. The programs that it installs run, and say which they are.
func TestPrograms(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	local := t.TempDir()
	s.run(t, "git clone -q https://github.com/nodeattest/nodeattest && cd nodeattest")
	p := readPage(t, "programs.md", "sh", "yaml")
	images := p.take(t, "Programs for real machines", "yaml")
	for _, command := range p.commands(t) {
		s.run(t, strings.ReplaceAll(command, " /usr/local/", " "+local+"/"))
	}
	for program, say := range map[string]string{"kubectl-nodeattest": "rebind", "kubelet-authenticator": "status", "external-jwt-signer": "kubeadm-patch"} {
		if out := s.run(t, filepath.Join(local, "bin", program)+" --help"); !strings.Contains(out, say) {
			t.Errorf("%s --help: %s, want it to speak of %q", program, out, say)
		}
	}
	testImages(t, s, images)
	// The published files have their licences with them.
	folder := s.run(t, "ls dist/nodeattest-v0.0.0-dev-linux-amd64")
	for _, file := range []string{"LICENSE", "THIRD_PARTY", "sbom.cdx.json", "node", "external-signer"} {
		if !strings.Contains(folder, file) {
			t.Errorf("no %s in %s", file, folder)
		}
	}
	first := s.run(t, "cat dist/SHA256SUMS")
	for _, file := range []string{"kubelet-authenticator-v0.0.0-dev-amd64.deb", "install-observe.yaml", "install-enforce.yaml"} {
		if !strings.Contains(first, "  "+file+"\n") {
			t.Errorf("no sum of %s", file)
		}
	}
	if again := s.run(t, "cd .. && git clone -q https://github.com/nodeattest/nodeattest other && cd other && ARCHES=amd64 scripts/release.sh v0.0.0-dev dist >/dev/null && cat dist/SHA256SUMS"); again != first {
		t.Errorf("another clone of the same commit has other sums:\n%s\n%s", first, again)
	}
}

// testImages has kustomize name the image as the page does, above the manifests of the clone.
func testImages(t *testing.T, s *shell, images string) {
	t.Helper()
	digest := "sha256:" + strings.Repeat("0", 64)
	text := "resources: [../kube/deploy]\n" + strings.NewReplacer("REGISTRY", "registry.example", "sha256:...", digest).Replace(images)
	s.run(t, "mkdir my-cluster && cat >my-cluster/kustomization.yaml <<EOF\n"+text+"EOF")
	out := s.run(t, filepath.Join(controlplane.Binaries(t), "kubectl")+" kustomize my-cluster | grep ' image: '")
	if want := "image: registry.example/nodeattest@" + digest; strings.TrimSpace(out) != want {
		t.Errorf("the images are %s, want %s", out, want)
	}
}
