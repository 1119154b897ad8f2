package house_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestThreatModel: each check, vector and test that the threat model names exists; a vector
// expects one of the checks of its line; each check of a line that is shown is expected by one of
// its vectors, or named in the test files of one of its tests' folder; and the lines without a test
// are listed at the page's end.
func TestThreatModel(t *testing.T) {
	lines, problems := threatModelProblems(t, ".", readFile(t, "docs/threat-model.md"))
	none(t, problems)
	shown := slices.DeleteFunc(slices.Clone(lines), func(l threat) bool { return l.untested })
	t.Logf("%d lines, %d of them shown by a vector or test", len(lines), len(shown))
}

func TestThreatModelBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"oid/oid.go":                          "package oid\n\nimport \"" + modulePath + "/refusal\"\n\nconst CheckSize refusal.Check = \"oid-size\"\n\nconst checkText refusal.Check = \"oid-text\"\n",
		"oid/oid_test.go":                     "package oid\n\nfunc TestSize(t *testing.T) {\n\tt.Run(\"too long\", nil)\n\t_, _ = CheckSize, 0\n}\n",
		"vectors/data/request/too-long.json":  `{"expect": "oid-size"}`,
		"vectors/data/request/nested.json":    `{"expect": "other", "cause": "oid-size"}`,
		"vectors/data/accepted/sound.json":    `{"expect": ""}`,
		"vectors/cloud/gce/another-text.json": `{"expect": "oid-text"}`,
	})
	const head = "| | who | stopped by | shown by | remains |\n| --- | --- | --- | --- | --- |\n"
	line := func(number, stopped, shown string) string {
		return "| " + number + " | a stranger |  " + stopped + " | " + shown + " | nothing |\n"
	}
	for _, tt := range []struct{ name, page, want string }{
		{"good", head + line("1.1", "`oid-size`, `CheckSize`", "`request/too-long`, `oid.TestSize`, `oid.TestSize/too long`") +
			line("1.2", "nothing", "`accepted/sound`") + line("1.3", "nothing", "no test") +
			line("1.4", "`oid-size`", "`request/nested`") + line("1.5", "`oid-text`", "`gce/another-text`") + "\nLines without a test: 1.3.\n", ""},
		{"no lines", "# Title\n", "has no lines"},
		{"cells", head + "| 1.1 | a stranger |  nothing | no test |\n\nLines without a test: 1.1.\n", "1.1: 4 cells, not 5"},
		{"empty cell", head + line("1.1", "", "`oid.TestSize`") + "\nLines without a test: none.\n", "1.1: an empty cell"},
		{"number twice", head + line("1.1", "`oid-size`", "`oid.TestSize`") + line("1.1", "`oid-size`", "`oid.TestSize`") + "\nLines without a test: none.\n", "1.1: not the number after 1.1"},
		{"number left out", head + line("1.1", "`oid-size`", "`oid.TestSize`") + line("1.3", "`oid-size`", "`oid.TestSize`") + "\nLines without a test: none.\n", "1.3: not the number after 1.1"},
		{"check", head + line("1.1", "`oid-form`", "`oid.TestSize`") + "\nLines without a test: none.\n", "1.1: no check oid-form"},
		{"vector", head + line("1.1", "`oid-size`", "`oid.TestSize`, `request/gone`") + "\nLines without a test: none.\n", "1.1: no vector request/gone"},
		{"check that nothing shows", head + line("1.1", "`oid-size`, `oid-text`", "`request/too-long`, `oid.TestSize`") + "\nLines without a test: none.\n", "1.1: nothing shows oid-text"},
		{"vector of another check", head + line("1.1", "`oid-text`", "`gce/another-text`, `request/too-long`") + "\nLines without a test: none.\n", `1.1: vector request/too-long expects "oid-size"`},
		{"vector that is accepted", head + line("1.1", "`oid-text`", "`gce/another-text`, `accepted/sound`") + "\nLines without a test: none.\n", `1.1: vector accepted/sound expects ""`},
		{"test", head + line("1.1", "`oid-size`", "`oid.TestForm`") + "\nLines without a test: none.\n", "1.1: no test oid.TestForm"},
		{"part of a test", head + line("1.1", "`oid-size`", "`oid.TestSize/too short`") + "\nLines without a test: none.\n", "1.1: no test oid.TestSize/too short"},
		{"names nothing", head + line("1.1", "`oid-size`", "everywhere") + "\nLines without a test: none.\n", "1.1: shown by nothing"},
		{"not listed", head + line("1.1", "`oid-size`", "no test") + "\nLines without a test: none.\n", `lists "none" as lines without a test, want "1.1"`},
		{"listed", head + line("1.1", "`oid-size`", "`oid.TestSize`") + "\nLines without a test: 1.1.\n", `lists "1.1" as lines without a test, want "none"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, problems := threatModelProblems(t, root, tt.page)
			if tt.want == "" {
				none(t, problems)
				return
			}
			exactly(t, problems, tt.want)
		})
	}
}

// A threat is one numbered line of the tables.
type threat struct {
	number           string
	stopped, shownBy []string // what stands between backquotes in the two cells
	untested         bool
}

var (
	threatLine = regexp.MustCompile(`(?m)^\| (\d+\.\d+) \|(.*)\|$`)
	backquoted = regexp.MustCompile("`([^`]+)`")
	untested   = regexp.MustCompile(`(?m)^Lines without a test: (.*)\.$`)
	kebabCase  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

func threatModelProblems(t *testing.T, root, page string) (lines []threat, problems []string) {
	t.Helper()
	checks := make(map[string][]string)
	for _, c := range namedChecks(t, root) {
		checks[c.text] = append(checks[c.text], c.name[strings.LastIndex(c.name, ".")+1:])
	}
	var without []string
	before := ""
	for _, found := range threatLine.FindAllStringSubmatch(page, -1) {
		number, cells := found[1], strings.Split(found[2], "|")
		wrong := func(format string, args ...any) {
			problems = append(problems, "docs/threat-model.md: "+number+": "+fmt.Sprintf(format, args...))
		}
		if len(cells) != 4 {
			wrong("%d cells, not 5", len(cells)+1)
			without = append(without, number)
			continue
		}
		if slices.ContainsFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) == "" }) {
			wrong("an empty cell")
		}
		if !follows(before, number) {
			wrong("not the number after %s", before)
		}
		before = number
		line := threat{number, quotedIn(cells[1]), quotedIn(cells[2]), strings.TrimSpace(cells[2]) == "no test"}
		if line.untested {
			without = append(without, number)
		} else if len(line.shownBy) == 0 {
			wrong("shown by nothing")
		}
		for _, name := range line.stopped {
			switch {
			case !kebabCase.MatchString(name):
			case checks[name] == nil:
				wrong("no check %s", name)
			case len(line.shownBy) > 0 && !slices.ContainsFunc(line.shownBy, func(by string) bool { return names(t, root, by, name, checks[name]) }):
				wrong("nothing shows %s", name)
			}
		}
		for _, name := range line.shownBy {
			if reason := notShown(t, root, name, line.stopped); reason != "" {
				wrong("%s", reason)
			}
		}
		lines = append(lines, line)
	}
	if before == "" && len(problems) == 0 {
		return nil, []string{"docs/threat-model.md has no lines"}
	}
	listed, want := "", "none"
	if found := untested.FindStringSubmatch(page); found != nil {
		listed = found[1]
	}
	if len(without) > 0 {
		want = strings.Join(without, ", ")
	}
	if listed != want && len(without) == len(slices.Compact(without)) && listed+want != "" {
		problems = append(problems, fmt.Sprintf("docs/threat-model.md lists %q as lines without a test, want %q", listed, want))
	}
	return lines, problems
}

// follows reports whether a line's number is the one after that of the line before it, in the
// same section or the next.
func follows(before, number string) bool {
	var section, line, s, l int
	if before != "" {
		if _, err := fmt.Sscanf(before, "%d.%d", &section, &line); err != nil {
			return false
		}
	}
	if _, err := fmt.Sscanf(number, "%d.%d", &s, &l); err != nil {
		return false
	}
	return s == section && l == line+1 || s == section+1 && l == 1
}

func quotedIn(cell string) (names []string) {
	for _, found := range backquoted.FindAllStringSubmatch(cell, -1) {
		names = append(names, found[1])
	}
	return names
}

// notShown says why a name is not that of a vector or test that shows a line, or nothing. A
// vector is class/name, a test folder.TestName, or TestName of the root, and a part of a test
// folder.TestName/part.
func notShown(t *testing.T, root, name string, checks []string) string {
	t.Helper()
	if files, test, ok := testFiles(t, root, name); ok {
		test, part, parted := strings.Cut(test, "/")
		if !strings.Contains(files, "\nfunc "+test+"(") || parted && !strings.Contains(files, strconv.Quote(part)) {
			return "no test " + name
		}
		return ""
	}
	expected, ok := expectedOf(t, root, name)
	if !ok {
		return "no vector " + name
	}
	if expected[0] == "" && len(checks) == 0 || slices.ContainsFunc(checks, func(c string) bool { return slices.Contains(expected, c) }) {
		return ""
	}
	return fmt.Sprintf("vector %s expects %q", name, expected[0])
}

// names reports whether a vector expects a check, or the test files of a test's folder name it: by its
// text, as the reason of a condition, or by the name of a constant.
func names(t *testing.T, root, by, check string, constants []string) bool {
	t.Helper()
	if files, _, ok := testFiles(t, root, by); ok {
		reason := ""
		for part := range strings.SplitSeq(check, "-") {
			reason += strings.ToUpper(part[:1]) + part[1:]
		}
		return strings.Contains(files, strconv.Quote(check)) || strings.Contains(files, strconv.Quote(reason)) || slices.ContainsFunc(constants, func(c string) bool {
			return regexp.MustCompile(`(?i)\b` + c + `\b`).MatchString(files)
		})
	}
	expected, ok := expectedOf(t, root, by)
	return ok && slices.Contains(expected, check)
}

// testFiles returns the text of the test files in the folder of a test, and the test's name; ok is
// false for a vector.
func testFiles(t *testing.T, root, name string) (text, test string, ok bool) {
	t.Helper()
	dir, test, ok := strings.Cut("."+name, ".Test")
	if !ok {
		return "", "", false
	}
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(strings.TrimPrefix(dir, ".")), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		all.WriteString(readFile(t, file))
	}
	return all.String(), "Test" + test, true
}

// expectedOf returns the checks that a vector expects, the deciding one first.
func expectedOf(t *testing.T, root, name string) (checks []string, ok bool) {
	t.Helper()
	for _, folder := range []string{"data", "cloud"} {
		text, err := os.ReadFile(filepath.Join(root, "vectors", folder, filepath.FromSlash(path.Clean(name))+".json"))
		if err != nil {
			continue
		}
		var vector struct {
			Expect, Cause string
			Also          []string
		}
		if err := json.Unmarshal(text, &vector); err != nil {
			t.Fatal(err)
		}
		return append([]string{vector.Expect, vector.Cause}, vector.Also...), true
	}
	return nil, false
}
