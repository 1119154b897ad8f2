package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const monitoringPage = "docs/monitoring.md"

// watched are the names that an operator watches, by the first cell of the tables' heads.
type watched struct{ metric, reason, log map[string]bool }

// TestMonitoringPage: the tables have each metric of the programs, each reason of an Event that is no check's,
// each alert, and each line of the log with the level Error or Warn, and nothing that does not exist.
func TestMonitoringPage(t *testing.T) {
	none(t, monitoringProblems(t, ".", readFile(t, monitoringPage), readFile(t, "kube/deploy/monitoring/rules.yaml")))
}

func TestMonitoringPageBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"kube/a.go": "package kube\n\nconst reasonLost = \"Lost\"\n\nfunc f() {\n\tcount(\"nodeattest_a_total\")\n\tlog.FromContext(ctx).Error(err, \"it \"+\"failed\")\n" +
			"\ta.config.Log.Warn(\"look here\", \"why\", err)\n\twarnOnce(\"once alone\", err)\n\tlog.Info(\"in passing\")\n\thttp.Error(w, \"no log line\", 400)\n\tstatus.Error(codes.Internal, \"no log line\")\n}\n",
		"kube/a_test.go":          "package kube\n\nconst name = \"nodeattest_of_a_test\"\n",
		"kube/examples/a/main.go": "package main\n\nfunc main() { log.Error(\"of an example\") }\n",
	})
	const rules = "      - alert: High\n"
	const sound = "| metric | meaning | who | what to do |\n| --- | --- | --- | --- |\n| `nodeattest_a_total{b}` | why | operator | this |\n\n" +
		"| reason | about | who | alert |\n| --- | --- | --- | --- |\n| `Lost` | a thing | operator | none |\n\n" +
		"| alert | severity | fires when | who | what to do |\n| --- | --- | --- | --- | --- |\n| `High` | critical | now | operator | this |\n\n" +
		"| log line | program | who | what to do |\n| --- | --- | --- | --- |\n| `it` | a | owner | this |\n| `look here` | a | owner | this |\n| `once alone` | a | owner | this |\n| `in passing` | a | owner | this |\n"
	none(t, monitoringProblems(t, root, sound, rules))
	none(t, monitoringProblems(t, root, strings.Replace(sound, "| `in passing` | a | owner | this |\n", "", 1), rules))
	for _, row := range []struct{ old, with, want string }{
		{"| `nodeattest_a_total{b}` | why | operator | this |\n", "", "no row has the metric `nodeattest_a_total`"},
		{"nodeattest_a_total{b}", "nodeattest_b_total", "no source has the metric `nodeattest_b_total`"},
		{"| `Lost` | a thing | operator | none |\n", "", "no row has the reason `Lost`"},
		{"`Lost`", "`Found`", "no source has the reason `Found`"},
		{"| `High` | critical | now | operator | this |\n", "", "no row has the alert `High`"},
		{"`High`", "`Low`", "no source has the alert `Low`"},
		{"| `look here` | a | owner | this |\n", "", "no row has the log line `look here`"},
		{"| `once alone` | a | owner | this |\n", "", "no row has the log line `once alone`"},
		{"`look here`", "`look there`", "no source has the log line `look there`"},
		{"| `it` | a | owner |", "| `it` | a | people |", "`it`: people acts, want"},
		{"| `it` | a | owner | this |", "| `it` | a | owner | |", "`it`: an empty cell"},
	} {
		problems := monitoringProblems(t, root, strings.Replace(sound, row.old, row.with, 1), rules)
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, row.want) }) {
			t.Errorf("%q in the place of %q: got %q, want %q", row.with, row.old, problems, row.want)
		}
	}
}

var (
	alertName     = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	programMetric = regexp.MustCompile(`^nodeattest_[a-z0-9_]+$`)
)

func monitoringProblems(t *testing.T, root, page, rules string) (problems []string) {
	t.Helper()
	must, may := watchedIn(t, root)
	alerts := map[string]bool{}
	for _, found := range alertName.FindAllStringSubmatch(rules, -1) {
		alerts[found[1]] = true
	}
	wrong := func(problem string) { problems = append(problems, monitoringPage+": "+problem) }
	tables := map[string]struct{ must, may map[string]bool }{
		"metric": {must.metric, must.metric}, "reason": {must.reason, must.reason}, "alert": {alerts, alerts}, "log line": {must.log, may.log},
	}
	seen := map[string]bool{}
	for _, row := range headedRows(page) {
		table, ok := tables[row.head]
		if !ok {
			continue
		}
		names := quotedIn(row.cells[0])
		if len(names) != 1 {
			wrong(row.cells[0] + ": names " + strconv.Itoa(len(names)) + ", want one")
			continue
		}
		name := names[0]
		if row.head == "metric" {
			name, _, _ = strings.Cut(name, "{")
		}
		seen[row.head+name] = true
		if !table.may[name] {
			wrong("no source has the " + row.head + " `" + name + "`")
		}
		actor := len(row.cells) - 2
		switch {
		case slices.Contains(row.cells, ""):
			wrong("`" + name + "`: an empty cell")
		case !slices.Contains(actors, row.cells[actor]):
			wrong("`" + name + "`: " + row.cells[actor] + " acts, want " + strings.Join(actors, ", "))
		}
	}
	for head, table := range tables {
		for name := range table.must {
			if !seen[head+name] {
				wrong("no row has the " + head + " `" + name + "`")
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// watchedIn finds the names in the code of the programs: the page has all of must, and the log lines of
// every level, may, can stand there.
func watchedIn(t *testing.T, root string) (must, may watched) {
	t.Helper()
	must = watched{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	may.log = map[string]bool{}
	for _, folder := range []string{"kube", "externalsigner"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, entry fs.DirEntry, err error) error {
			switch base := filepath.Base(name); {
			case err != nil && folder == "externalsigner" && root != ".":
				return nil // a fixture has none
			case err != nil:
				return err
			case entry.IsDir() && (base == "testdata" || base == "examples" || strings.HasSuffix(base, "test")):
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go"):
				return nil
			}
			text := readFile(t, name)
			for _, reason := range reasonsIn(t, text) {
				if strings.Contains(filepath.ToSlash(name), "kube/") && !strings.Contains(filepath.ToSlash(name), "kube/authenticator") {
					must.reason[reason] = true
				}
			}
			literals(t, text, must, may)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return must, may
}

// literals notes the metrics and log lines of a file.
func literals(t *testing.T, source string, must, may watched) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && programMetric.MatchString(text) {
				must.metric[text] = true
			}
		case *ast.CallExpr:
			if level, line := logLine(n); line != "" {
				may.log[line] = true
				if level != "Info" {
					must.log[line] = true
				}
			}
		}
		return true
	})
}

// logLine is the message of a call that logs: a literal, or the first part of a text that is put together.
func logLine(call *ast.CallExpr) (level, line string) {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && (x.Name == "http" || x.Name == "status") {
			return "", ""
		}
		level = f.Sel.Name
	case *ast.Ident:
		level = f.Name
	}
	if !slices.Contains([]string{"Error", "Warn", "warnOnce", "Info"}, level) {
		return "", ""
	}
	for _, argument := range call.Args[:min(2, len(call.Args))] { // of a logr.Logger the error comes first
		for {
			sum, ok := argument.(*ast.BinaryExpr)
			if !ok {
				break
			}
			argument = sum.X
		}
		if literal, ok := argument.(*ast.BasicLit); ok {
			text, err := strconv.Unquote(literal.Value)
			if err == nil {
				return level, strings.TrimSpace(text)
			}
		}
	}
	return "", ""
}
