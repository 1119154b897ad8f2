package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// The worked example on the page is the one of the files.
func TestProtocolExample(t *testing.T) {
	example := exampleBegin + exampleText(os.DirFS(repository)) + exampleEnd
	if !strings.Contains(string(read(t, repository, "docs/protocol.md")), example) {
		t.Error("run make generate: docs/protocol.md has another example")
	}
}

func TestWriteExample(t *testing.T) {
	write := func(page string) (err error) {
		defer forge.Caught(&err)
		dir := t.TempDir()
		for _, name := range []string{"attest/testdata/messages", "vectors/data/accepted"} {
			forge.Check(os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(repository, name))))
		}
		writeFile(filepath.Join(dir, "docs", "protocol.md"), []byte(page))
		writeExample(dir)
		if got := string(read(t, dir, "docs/protocol.md")); !strings.HasPrefix(got, "before\n"+exampleBegin+"\n### ") || !strings.HasSuffix(got, exampleEnd+"after\n") || strings.Contains(got, "old") {
			t.Errorf("got %s", got)
		}
		return nil
	}
	if err := write("before\n" + exampleBegin + "old\n" + exampleEnd + "after\n"); err != nil {
		t.Error(err)
	}
	for _, page := range []string{"before\n", "before\n" + exampleBegin, "before\n" + exampleEnd} {
		if err := write(page); err == nil {
			t.Errorf("%q: no error", page)
		}
	}
}
