package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestProgramsPage: the page has a row for each command, and the exit status of each subject of doctor.
func TestProgramsPage(t *testing.T) {
	page := string(testkit.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "programs.md"))))
	rows := 0
	for _, c := range commands() {
		if strings.Contains(page, "\n| `"+c.name+"` | ") {
			rows++
		} else {
			t.Errorf("no row for %s", c.name)
		}
	}
	if n := strings.Count(page, "| yes |\n") + strings.Count(page, "| no |\n") + strings.Count(page, "| no, for a TPM |\n"); n != rows {
		t.Errorf("%d rows for %d commands", n, rows)
	}
	for _, subject := range []string{"device", "lockout", "chain", "clock", "API server", "token", "policy", "kubelet"} {
		found := false
		for line := range strings.Lines(page) {
			found = found || strings.HasPrefix(line, fmt.Sprintf("| %d | ", classOf(subject))) && strings.Contains(line, "`"+subject+"`")
		}
		if !found {
			t.Errorf("no status %d for %s", classOf(subject), subject)
		}
	}
}
