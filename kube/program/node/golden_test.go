package node

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// golden compares a text with a file of testdata, without the values that differ from run to run.
func golden(t *testing.T, name, got string, replace ...string) {
	t.Helper()
	got = strings.NewReplacer(replace...).Replace(got)
	got = regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(got, "<digest>")
	got = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(got, "<time>")
	path := filepath.Join("testdata", name+".txt")
	if *update {
		testkit.MustDo(errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)))
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no %s: run the test with -update", path)
	}
	if testkit.MustDo(err); got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}
