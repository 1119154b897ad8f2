package house_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsRunFolders: a command of the Makefile runs the tests in each folder of module test.
func TestCommandsRunFolders(t *testing.T) {
	none(t, foldersNotRun(t, ".", readFile(t, "Makefile")))
}

func TestCommandsRunFoldersBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"test/run/deep/a_test.go": "package deep\n",
		"test/left/a_test.go":     "package left\n",
		"test/no/a.go":            "package no\n",
		"test/own/go.mod":         "module own\n",
		"test/own/a_test.go":      "package own\n",
	})
	got := foldersNotRun(t, root, "e2e:\n\t$(call each,test,go test ./run/...)\n")
	if len(got) != 1 || !strings.Contains(got[0], "test/left") {
		t.Errorf("got %q", got)
	}
}

// foldersNotRun names the folders of module test with tests that no command for that module has.
func foldersNotRun(t *testing.T, root, makefile string) (problems []string) {
	t.Helper()
	run := map[string]bool{}
	for _, command := range regexp.MustCompile(`\(call each,test,.*`).FindAllString(makefile, -1) {
		for _, folder := range regexp.MustCompile(`\./([a-z0-9]+)/\.\.\.`).FindAllStringSubmatch(command, -1) {
			run[folder[1]] = true
		}
	}
	folders, err := filepath.Glob(filepath.Join(root, "test", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		name := filepath.Base(folder)
		module, err := filepath.Glob(filepath.Join(folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		tests := 0
		for _, pattern := range []string{"*_test.go", "*/*_test.go", "*/*/*_test.go"} {
			found, err := filepath.Glob(filepath.Join(folder, pattern))
			if err != nil {
				t.Fatal(err)
			}
			tests += len(found)
		}
		if len(module) == 0 && tests > 0 && !run[name] {
			problems = append(problems, "test/"+name+" has tests that no command of the Makefile runs")
		}
	}
	return problems
}
