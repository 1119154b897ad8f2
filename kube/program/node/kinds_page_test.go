package node

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestKindsPage: what docs/kinds-of-evidence.md has for the node's file loads, in place of the
// evidence of the shipped one.
func TestKindsPage(t *testing.T) {
	page := testkit.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "kinds-of-evidence.md")))
	found := regexp.MustCompile("`(evidence: \\{([a-z]+): .*?\\})`").FindAllStringSubmatch(string(page), -1)
	if len(found) != 7 {
		t.Errorf("%d sections, want one for each kind of the table: %q", len(found), found)
	}
	for _, section := range found {
		t.Run(section[1], func(t *testing.T) {
			file := map[string]any{}
			for _, text := range []string{read(t, "kubelet-authenticator.yaml"), section[1]} {
				testkit.MustDo(yaml.Unmarshal([]byte(text), &file))
			}
			text := testkit.Must(yaml.Marshal(file))
			s := testkit.Must(parseSettings(text))
			if c, err := s.config(nil); err != nil || c.Kind.Provider() != section[2] {
				t.Errorf("%+v, %v", c.Kind, err)
			}
		})
	}
}
