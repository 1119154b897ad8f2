package settings

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestKindsPage loads the blocks of docs/kinds-of-evidence.md: a config.yaml with the sections of
// the shipped one that it does not replace, and the inventory after it.
func TestKindsPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "kinds-of-evidence.md"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	for name, root := range map[string]string{
		"ek-roots.pem": "ak.pem", "google-root.pem": "ak.pem", "azure-tpm-root.pem": "ak.pem", "example-root.pem": "ak.pem",
		"google-intermediates.pem": "intermediates.pem", "azure-tpm-intermediates.pem": "intermediates.pem",
		"azure-roots.pem": "azure.pem", "nitro-root.pem": "nitro.pem", "ec2-eu-west-1.pem": "ec2.pem",
	} {
		testkit.MustDo(os.Link(filepath.Join(w.dir, root), filepath.Join(w.dir, name)))
	}
	kinds := map[string]bool{}
	var s *Settings
	blocks := regexp.MustCompile("(?s)```yaml\n# ([a-z.]+)([^\n]*\n.*?)```\n").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		switch name, text := block[1], "#"+block[2]; name {
		case "config.yaml":
			if s, err = Parse([]byte(strings.ReplaceAll(withSections(t, text), "/etc/nodeattest", w.dir))); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if _, err := s.Kinds(); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
			kinds[strings.Join(s.Opened(), " ")] = true
		case "inventory.yaml":
			if s == nil {
				t.Fatal("an inventory before the configuration that it is for")
			}
			if machines, err := s.ParseInventory([]byte(text)); err != nil || len(machines) < 2 {
				t.Errorf("%d machines, %v\n%s", len(machines), err, text)
			}
		default:
			t.Errorf("a block for %s", name)
		}
	}
	if len(blocks) != 8 || !kinds["tpm"] || !kinds["gce azure nitro ec2"] || !kinds["tpm gce"] || strings.Count(string(page), "```yaml") != len(blocks) {
		t.Errorf("%d blocks, of kinds %v", len(blocks), kinds)
	}
}

// withSections returns the shipped file with other sections in place of its own.
func withSections(t *testing.T, text string) string {
	t.Helper()
	file := map[string]any{}
	for _, text := range []string{shipped(t), text} {
		testkit.MustDo(yaml.Unmarshal([]byte(text), &file))
	}
	whole := testkit.Must(yaml.Marshal(file))
	return string(whole)
}
