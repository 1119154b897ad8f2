package house_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBenchmarksPage: each command of docs/benchmarks.md selects benchmarks that are there.
func TestBenchmarksPage(t *testing.T) {
	none(t, benchmarkProblems(t, ".", readFile(t, "docs/benchmarks.md")))
}

func TestBenchmarksPageBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"csr/a_test.go":     "package csr\n\nfunc BenchmarkRead(b *testing.B) {}\n",
		"test/go.mod":       "module m\n",
		"test/in/a_test.go": "package in\n\nfunc BenchmarkOther(b *testing.B) {}\n",
	})
	exactly(t, benchmarkProblems(t, root, "(`make bench BENCH=Read/`; `BENCH='Read|Gone' BENCHTIME=1s`) `BENCH=Other`, `cd test && go test -run '^$' -bench Other ./in -benchtime 1s`, `cd test && go test -run '^$' -bench Other ./out`"),
		"no benchmark Gone in .", "no benchmark Other in .", "no benchmark Other in test/out")
	exactly(t, benchmarkProblems(t, root, "nothing"), "the page has no command")
}

var benchmark = regexp.MustCompile(`BENCH='?([^'` + "`" + ` ]+)|cd (\S+) && go test -run '\^\$' -bench (\S+) \.(?:/([^` + "`" + ` ]+))?`)

// benchmarkProblems lists what commands name, below root, that is not there.
func benchmarkProblems(t *testing.T, root, page string) (problems []string) {
	t.Helper()
	commands := benchmark.FindAllStringSubmatch(page, -1)
	if len(commands) == 0 {
		return []string{"the page has no command"}
	}
	for _, c := range commands {
		names, dir := c[1], "."
		if names == "" {
			names, dir = c[3], filepath.ToSlash(filepath.Join(c[2], c[4]))
		}
		for name := range strings.SplitSeq(names, "|") {
			name, _, _ = strings.Cut(name, "/")
			if !hasBenchmark(t, filepath.Join(root, dir), regexp.MustCompile(name)) {
				problems = append(problems, "no benchmark "+name+" in "+dir)
			}
		}
	}
	return problems
}

var declared = regexp.MustCompile(`(?m)^func (Benchmark\w*)\(`)

// hasBenchmark reports whether a folder of a module, or one below it, has a benchmark of that name.
func hasBenchmark(t *testing.T, dir string, name *regexp.Regexp) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && file != dir:
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil || strings.HasPrefix(entry.Name(), ".") {
				return filepath.SkipDir
			}
		case strings.HasSuffix(file, "_test.go"):
			for _, b := range declared.FindAllStringSubmatch(readFile(t, file), -1) {
				found = found || name.MatchString(b[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
