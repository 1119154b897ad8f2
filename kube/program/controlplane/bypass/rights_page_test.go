package bypass

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestRightsPage: docs/enforcing.md has the rights that are looked for in a table, each way's
// verbs on resources of a group, and no others.
func TestRightsPage(t *testing.T) {
	page := testkit.Must(os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "enforcing.md")))
	row := regexp.MustCompile("^\\| ([A-Z][A-Za-z]+) \\| ([a-z:, -]+) \\| `([a-z0-9/., -]+)` \\| .+ \\|$")
	var written, want []string
	for line := range strings.Lines(string(page)) {
		if r := row.FindStringSubmatch(strings.TrimSuffix(line, "\n")); r != nil {
			for verb := range strings.SplitSeq(r[2], ", ") {
				for resource := range strings.SplitSeq(r[3], ", ") {
					written = append(written, strings.Join([]string{r[1], verb, resource}, " "))
				}
			}
		}
	}
	for _, r := range rights(true, knownHolders()) {
		resource := r.resource
		if r.group != "" {
			resource += "." + r.group
		}
		if r.subject != "" {
			resource += "/" + r.subject
		}
		want = append(want, strings.Join([]string{string(r.way), r.verb, resource}, " "))
	}
	slices.Sort(want)
	want = slices.Compact(want) // approve, of several signers
	slices.Sort(written)
	for _, w := range want {
		if !slices.Contains(written, w) {
			t.Errorf("the page has no %s", w)
		}
	}
	for _, w := range written {
		if !slices.Contains(want, w) {
			t.Errorf("the page has what is not looked for: %s", w)
		}
	}
	if len(slices.Compact(slices.Clone(written))) != len(written) || len(want) < 90 {
		t.Errorf("%d rights on the page, some of them twice; %d are looked for", len(written), len(want))
	}
}
