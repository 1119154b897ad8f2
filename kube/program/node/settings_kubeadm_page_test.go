package node

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestKubeadmPage: what docs/kubeadm.md has for the file of a machine of the control plane loads
// with the shipped one, and keeps the keys where the state is although there is a recoverySigner.
func TestKubeadmPage(t *testing.T) {
	page := testkit.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "kubeadm.md")))
	found := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(found) != 1 {
		t.Fatalf("%d blocks of YAML: %q", len(found), found)
	}
	shipped := regexp.MustCompile(`(?m)^recoverySigner: ""$`).ReplaceAllString(read(t, "kubelet-authenticator.yaml"), "recoverySigner: cluster.x-k8s.io/kubelet-attestation-recovery-tpm")
	for text, memory := range map[string]bool{shipped: true, shipped + string(found[0][1]): false} {
		s := testkit.Must(parseSettings([]byte(text)))
		c, err := s.config(nil)
		if err != nil || (c.KeyDir == defaultKeys) != memory || (c.KeyDir == c.Dir) == memory {
			t.Errorf("keys in %q, state in %q, %v; want keys in memory: %t", c.KeyDir, c.Dir, err, memory)
		}
	}
}
