package nodeattest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// A word is what no file may say, because a reader of the repository could not
// follow it or is owed something better.
type word struct {
	pattern *regexp.Regexp
	why     string
	except  []string // files that may
}

// The patterns are written so that this file does not match them.
var words = []word{
	{pattern: regexp.MustCompile(`(?m)(^|[^\w.-])/(wor[k]|roo[t]|hom[e])/|/tm[p]/[a-z]*contract`), why: "a path of one machine"},
	{pattern: regexp.MustCompile(`\.\./share[d]`), why: "a path outside the repository", except: []string{".ci/run"}},
	{pattern: regexp.MustCompile(`DESIG[N] ?§|DESIG[N]\.md|STYL[E]\.md|FACT[S](-[A-Z]+)?\.md|FACT[S]-[A-Z]`), why: "a document that is not in the repository"},
	{pattern: regexp.MustCompile(`\b00\d_[0-9a-f]{16}\b`), why: "a document that is not in the repository"},
	{pattern: regexp.MustCompile(`(?i)\bhelper sessio[n]|\bthis sessio[n]\b|\bsubagen[t]|\bthe CE[O]\b|\blanguage mode[l]\b`), why: "how the code was written"},
	{pattern: regexp.MustCompile(`(?i)\b(issue|landing) #?\d`), why: "a number that means nothing here"},
	{pattern: regexp.MustCompile(`\bTOD[O]\b|\bFIXM[E]\b|\bHAC[K]\b`), why: "unfinished"},
	{pattern: regexp.MustCompile(`(?i)\bblazin|\bworld-clas|\bseamles[s]|\bstate[- ]of[- ]the[- ]ar[t]\b`), why: "praise instead of a fact"},
}

func TestWords(t *testing.T) {
	none(t, wordProblems(t, "."))
}

func TestWordsBites(t *testing.T) {
	root := fixture(t, map[string]string{
		".ci/run":      "cd ../share" + "d/corpus\n",
		"a/path.go":    "package a\n\n// See /wor" + "k/notes and \"/hom" + "e/me\".\n",
		"a/doc.go":     "package a\n\n// The order is that of DESIG" + "N §4.\n",
		"a/shared.go":  "package a\n\nconst dir = \"../share" + "d/corpus\"\n",
		"a/todo.go":    "package a\n\n// TOD" + "O: all of it.\n",
		"a/number.md":  "Fixed in issu" + "e 3.\n",
		"a/praise.md":  "A seamles" + "s experience.\n",
		"a/binary.bin": "\x00/wor" + "k/x",
		"a/fine.go":    "package a\n\n// A network/work/list of rework, the todo list, issue of a certificate.\n",
	})
	exactly(t, wordProblems(t, root),
		"a/path.go:3: a path of one machine", "a/path.go:3: a path of one machine",
		"a/doc.go:3: a document that is not in the repository",
		"a/shared.go:3: a path outside the repository",
		"a/todo.go:3: unfinished",
		"a/number.md:1: a number that means nothing here",
		"a/praise.md:1: praise instead of a fact",
	)
}

func wordProblems(t *testing.T, root string) []string {
	t.Helper()
	var problems []string
	walk(t, root, func(rel string) {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(rel)))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return // not text
		}
		for _, w := range words {
			if slices.Contains(w.except, rel) {
				continue
			}
			for _, at := range w.pattern.FindAllIndex(text, -1) {
				line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
				problems = append(problems, fmt.Sprintf("%s:%d: %s: %q", rel, line, w.why, text[at[0]:at[1]]))
			}
		}
	})
	return problems
}
