package node

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// masked returns an output without the values that differ from run to run, below its name.
func masked(name, out string, replace ...string) string {
	out = strings.NewReplacer(replace...).Replace(out)
	out = regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(out, "<digest>")
	return "-- " + name + " --\n" + regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(out, "<time>")
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		testkit.MustDo(errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)))
	}
	if want := testkit.Must(os.ReadFile(path)); got != string(want) {
		t.Errorf("%s (-update writes it): got\n%s\nwant\n%s", path, got, want)
	}
}
