package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

const troubleshootingPage = "docs/troubleshooting.md"

// TestTroubleshootingPage: the tables have each check, each reason of a condition or an Event that is no
// check's, and each message of an admission policy and a CustomResourceDefinition, by the exact text; a
// table of reasons also has each check as a condition's reason spells it. Each name of a row exists, and
// each row says who acts and how.
func TestTroubleshootingPage(t *testing.T) {
	rows, problems := troubleshootingProblems(t, ".", readFile(t, troubleshootingPage))
	none(t, problems)
	t.Logf("%d rows", rows)
}

func TestTroubleshootingPageBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"oid/oid.go": "package oid\n\nimport \"" + modulePath + "/refusal\"\n\nconst CheckSize refusal.Check = \"oid-size\"\n\n" +
			"const ReasonGood, mostly = \"Good\", \"Bad\"\n\ntype other string\n\nconst reasonOther other = \"Other\"\n",
		"oid/event.go":                   "package oid\n\nfunc event() {\n\treason := \"Happened\"\n\t_ = decision{Reason: \"Given\"}\n\t_, reason = 0, \"not a reason\"\n}\n",
		"oid/oid_test.go":                "package oid\n\nconst reasonOfATest = \"Tested\"\n",
		"oid/oidtest/oid.go":             "package oidtest\n\nimport \"" + modulePath + "/refusal\"\n\nconst checkHelper refusal.Check = \"helper\"\n\nconst reasonHelper = \"Helped\"\n",
		"test/forge/forge.go":            "package forge\n\nimport \"" + modulePath + "/refusal\"\n\nconst checkForge refusal.Check = \"forge\"\n",
		"claims/internal/alive/alive.go": "package alive\n\nvar Pod = Resource{\"old pod\", \"pods\"}\n\nfunc check(r string) any { return refusal.Check(r + \"-\" + r) }\n",
		"kube/deploy/a/policy.yaml":      "spec:\n  validations:\n    - expression: a\n      message: \"do not: ask\"\n    - expression: b\n      message: >-\n        two lines\n        of text\n      reason: Forbidden\n",
	})
	const head = "| text | meaning | who | what to do |\n| --- | --- | --- | --- |\n"
	const rest = "| `Good`, `Happened` | why | operator | this |\n| `Given`, `Forbidden` | why | no act | none |\n| `old-pod-gone`, `old-pod-uid`, `old-pod-deleted` | why | author | this |\n| `do not: ask` | why | operator | this |\n| `two lines of text` | why | operator | this |\n"
	const sound = head + "| `oid-size` | why | owner | this |\n" + rest
	for _, tt := range []struct {
		name, page string
		want       []string
	}{
		{"good", sound, nil},
		{"a table of reasons", strings.Replace(sound, "| text |", "| reason |", 1), []string{"no `OidSize` next to `oid-size`"}},
		{"both", strings.Replace(strings.Replace(sound, "| text |", "| reason |", 1), "`oid-size`", "`OidSize` `oid-size`", 1), nil},
		{"check", head + rest, []string{"no row has `oid-size`"}},
		{"only in the text of a row", head + rest + "| `Good` | not `oid-size` | operator | this |\n", []string{"no row has `oid-size`", "`Good` is in two rows"}},
		{"reason", strings.Replace(sound, "`Good`, ", "", 1), []string{"no row has `Good`"}},
		{"reason of an assignment", strings.Replace(sound, ", `Happened`", "", 1), []string{"no row has `Happened`"}},
		{"reason of a field", strings.Replace(sound, "`Given`, ", "`Good`, ", 1), []string{"no row has `Given`", "`Good` is in two rows"}},
		{"reason of a policy", strings.Replace(sound, ", `Forbidden`", "", 1), []string{"no row has `Forbidden`"}},
		{"check put together", strings.Replace(sound, ", `old-pod-uid`", "", 1), []string{"no row has `old-pod-uid`"}},
		{"message", strings.Replace(sound, "two lines of text", "two lines", 1), []string{"no row has `two lines of text`", "no source has `two lines`"}},
		{"unknown name", strings.Replace(sound, "`oid-size`", "`oid-size`, `oid-gone`", 1), []string{"no source has `oid-gone`"}},
		{"helper's check", strings.Replace(sound, "`oid-size`", "`oid-size`, `helper`", 1), []string{"no source has `helper`"}},
		{"no act", strings.Replace(sound, "| owner | this |", "| owner | |", 1), []string{"`oid-size`: an empty cell"}},
		{"unknown actor", strings.Replace(sound, "| owner |", "| people |", 1), []string{"`oid-size`: people acts, want"}},
		{"cells", strings.Replace(sound, "| owner | this |", "| owner |", 1), []string{"`oid-size`: 3 cells, want 4"}},
		{"no name", sound + "| nothing | why | owner | this |\n", []string{"nothing: names nothing"}},
		{"no rows", "# Title\n", []string{"has no rows"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, problems := troubleshootingProblems(t, root, tt.page)
			exactly(t, problems, tt.want...)
		})
	}
}

func TestComposedChecks(t *testing.T) {
	for file, want := range map[string]string{"claims/review.go": "review-a-name review-a-uid review-b", "csr/other.go": "a check that csr/other.go puts together"} {
		source := "case of(alive.A), name == \"b\":\n\treturn Check(\"review-\" + name)\n"
		if got := strings.Join(composedChecks(file, source), " "); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	if got := composedChecks("csr/other.go", "return p.Check(\"a\", b+\"c\")\n"); got != nil {
		t.Errorf("got %q", got)
	}
}

// actors are the people who can end a problem, as the page's introduction has them.
var actors = []string{"operator", "owner", "administrator", "author", "no act"}

// A headedRow is a row of a table, with the first cell of the table's head.
type headedRow struct {
	head  string
	cells []string
}

func headedRows(page string) (rows []headedRow) {
	head := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			head = ""
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for n := range cells {
			cells[n] = strings.TrimSpace(cells[n])
		}
		switch {
		case head == "":
			head = cells[0]
		case strings.Trim(cells[0], "-") != "":
			rows = append(rows, headedRow{head, cells})
		}
	}
	return rows
}

func troubleshootingProblems(t *testing.T, root, page string) (rows int, problems []string) {
	t.Helper()
	known, reasonOf := knownTexts(t, root)
	seen, asReasons := map[string]bool{}, map[string]bool{}
	for _, reason := range reasonOf {
		asReasons[reason] = true
	}
	wrong := func(problem string) { problems = append(problems, troubleshootingPage+": "+problem) }
	for _, row := range headedRows(page) {
		if row.head == "who" { // the actors
			continue
		}
		rows++
		texts := quotedIn(row.cells[0])
		for _, text := range texts {
			switch {
			case !known[text]:
				wrong("no source has `" + text + "`")
			case seen[text] && !asReasons[text]: // a reason of a check may also be one of its own
				wrong("`" + text + "` is in two rows")
			case row.head == "reason" && reasonOf[text] != "" && !slices.Contains(texts, reasonOf[text]):
				wrong("no `" + reasonOf[text] + "` next to `" + text + "`")
			}
			seen[text] = true
		}
		if problem := rowProblem(row.cells, texts); problem != "" {
			wrong(row.cells[0] + ": " + problem)
		}
	}
	if rows == 0 {
		return 0, []string{troubleshootingPage + " has no rows"}
	}
	for text := range known {
		if !seen[text] && !asReasons[text] {
			wrong("no row has `" + text + "`")
		}
	}
	slices.Sort(problems)
	return rows, problems
}

func rowProblem(cells, texts []string) string {
	switch {
	case len(texts) == 0:
		return "names nothing"
	case len(cells) != 4:
		return strconv.Itoa(len(cells)) + " cells, want 4"
	case slices.Contains(cells, ""):
		return "an empty cell"
	case !slices.Contains(actors, cells[2]):
		return cells[2] + " acts, want " + strings.Join(actors, ", ")
	}
	return ""
}

// onlyTests reports whether a folder is the module test or in it, or has a package for tests, such as
// attest/attesttest: its checks and reasons are not met in a cluster.
func onlyTests(dir string) bool {
	return dir == "test" || strings.HasPrefix(dir, "test/") || path.Base(dir) == path.Base(path.Dir(dir))+"test"
}

// knownTexts are the texts that a row may name, and the reasons of the checks among them.
func knownTexts(t *testing.T, root string) (known map[string]bool, reasonOf map[string]string) {
	t.Helper()
	known, reasonOf = map[string]bool{}, map[string]string{}
	for _, c := range namedChecks(t, root) {
		if dir := c.name[:strings.LastIndex(c.name, ".")]; !onlyTests(dir) {
			known[c.text] = true
			if kebabCase.MatchString(c.text) {
				reasonOf[c.text] = (&refusal.Error{Check: refusal.Check(c.text)}).Reason()
				known[reasonOf[c.text]] = true
			}
		}
	}
	take := func(texts []string) {
		for _, text := range texts {
			known[text] = true
		}
	}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, name)
		file = filepath.ToSlash(file)
		switch base := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (base == "testdata" || strings.HasPrefix(base, ".") && file != "." || onlyTests(file)):
			return filepath.SkipDir
		case strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go"):
			text := readFile(t, name)
			take(reasonsIn(t, text))
			take(composedChecks(file, text))
		case strings.HasSuffix(base, ".yaml") && strings.HasPrefix(file, "kube/deploy/"):
			take(policyTexts(readFile(t, name)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return known, reasonOf
}

// composed are the files that put checks together of a word and a name, and how they do.
var composed = []struct {
	file  string
	name  *regexp.Regexp
	forms []string
}{
	{"claims/internal/alive/alive.go", regexp.MustCompile(`= Resource\{"([a-z ]+)"`), []string{"%-gone", "%-uid", "%-deleted"}},
	{"claims/review.go", regexp.MustCompile(`\bof\(alive\.(\w+)\)`), []string{"review-%-name", "review-%-uid"}},
	{"claims/review.go", regexp.MustCompile(`\bname == "([a-z-]+)"`), []string{"review-%"}},
}

// puts matches code that puts a check together.
var puts = regexp.MustCompile(`\bCheck\([^"()\n]*"[a-z-]*" \+|\bCheck\(.*\+ "-" \+`)

// composedChecks are the checks that a file puts together. Of another file than the known ones, it is a
// text that no row has.
func composedChecks(file, text string) (texts []string) {
	for _, c := range composed {
		if c.file != file {
			continue
		}
		for _, found := range c.name.FindAllStringSubmatch(text, -1) {
			for _, form := range c.forms {
				texts = append(texts, strings.Replace(form, "%", strings.ReplaceAll(strings.ToLower(found[1]), " ", "-"), 1))
			}
		}
	}
	if len(texts) == 0 && puts.MatchString(text) {
		return []string{"a check that " + file + " puts together"}
	}
	return texts
}

var (
	reasonName   = regexp.MustCompile(`^[rR]eason([A-Z]\w*)?$`)
	reasonText   = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	policyReason = regexp.MustCompile(`(?m)^ +reason: (\w+)$`)
	// policyMessage is the message of a validation: in one line, or folded and indented by eight spaces or more.
	policyMessage = regexp.MustCompile(`(?m)^ +message: (>-(?:\n {8,}.*[^:\n])+|.+)$`)
)

// policyTexts are the messages of validations and the status reasons that a manifest has.
func policyTexts(manifest string) (texts []string) {
	for _, found := range policyReason.FindAllStringSubmatch(manifest, -1) {
		texts = append(texts, found[1])
	}
	for _, found := range policyMessage.FindAllStringSubmatch(manifest, -1) {
		texts = append(texts, strings.Join(strings.Fields(strings.Trim(strings.TrimPrefix(found[1], ">-"), `"`)), " "))
	}
	return texts
}

// reasonsIn are the reasons that a source writes: constants, variables and fields named reason. A constant
// with a type is no reason of ours, but of that type.
func reasonsIn(t *testing.T, source string) (reasons []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	take := func(name, value ast.Expr) {
		id, named := name.(*ast.Ident)
		literal, ok := value.(*ast.BasicLit)
		if !named || !ok || !reasonName.MatchString(id.Name) {
			return
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && reasonText.MatchString(text) {
			reasons = append(reasons, text)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i := range n.Values {
				if n.Type == nil {
					take(n.Names[i], n.Values[i])
				}
			}
		case *ast.AssignStmt:
			for i := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) {
					take(n.Lhs[i], n.Rhs[i])
				}
			}
		case *ast.KeyValueExpr:
			take(n.Key, n.Value)
		}
		return true
	})
	return reasons
}
