package house_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestComparison: each point of the comparison has one answer for each system of its first table and
// one of ours; an answer about another system has a source, which is a link to a fixed version; ours
// names tests that exist, or its point is listed as one without a test; at least three things that
// others do better are named, each with a source.
func TestComparison(t *testing.T) {
	c := compare(t, ".", readFile(t, "docs/comparison.md"))
	none(t, c.problems)
	t.Logf("%d points, %d answers (%d about others, %d of them not known), %d sources, %d tests, %d points in which others are better",
		c.points, c.answers, c.answers-c.points, c.unknown, len(c.sources), len(c.tests), c.better)
}

func TestComparisonBites(t *testing.T) {
	root := fixture(t, map[string]string{"csr/csr_test.go": "package csr\n\nfunc TestName(t *testing.T) {\n\tt.Run(\"a part\", nil)\n}\n"})
	const (
		head   = "# Title\n\n| system | purpose |\n| --- | --- |\n| kubeadm | joins |\n| kOps | clusters |\n"
		table  = "\n## 1. A point\n\n| system | answer | source |\n| --- | --- | --- |\n"
		ours   = "| **nodeattest** | yes | `csr.TestName`, `csr.TestName/a part` |\n"
		theirs = "| kubeadm, kOps | not known | [a][file] |\n"
		better = "\n## Where others are better\n\n- [x][file]\n- [y][file]\n- [z][file]\n\nPoints without a test of ours: none.\n"
		source = "\n[file]: https://github.com/a/b/blob/v1.2.3/c.go\n"
	)
	for _, tt := range []struct{ name, page, want string }{
		{"good", head + table + ours + theirs + better + source, ""},
		{"an issue", head + table + ours + theirs + better + "\n[file]: https://github.com/a/b/issues/7\n", ""},
		{"no points", head + better + source, "no points"},
		{"cells", head + table + ours + "| kubeadm, kOps | not known |\n" + theirs + better + source, "point 1: a row of 2 cells, not 3"},
		{"an empty answer", head + table + ours + "| kubeadm, kOps |  | [a][file] |\n" + better + source, "point 1: no answer for kubeadm, kOps"},
		{"a system without an answer", head + table + ours + "| kubeadm | no | [a][file] |\n" + better + source, "point 1: 0 answers for kOps"},
		{"two answers", head + table + ours + theirs + theirs + better + source, "point 1: 2 answers for kubeadm"},
		{"an unknown system", head + table + ours + theirs + "| other | no | [a][file] |\n" + better + source, "point 1: other is not in the first table"},
		{"no source", head + table + ours + "| kubeadm, kOps | no | read |\n" + better + source, "point 1: no source for kubeadm, kOps"},
		{"an undefined source", head + table + ours + "| kubeadm, kOps | no | [a][gone] |\n" + better + source, "no link gone"},
		{"an unused source", head + table + ours + theirs + better + source + "[other]: https://github.com/a/b/pull/7\n", "link other is not used"},
		{"a branch", head + table + ours + theirs + better + "\n[file]: https://github.com/a/b/blob/main/c.go\n", "link file leads to no fixed version"},
		{"no such test", head + table + "| **nodeattest** | yes | `csr.TestGone` |\n" + theirs + better + source, "point 1: no test csr.TestGone"},
		{"no such part", head + table + "| **nodeattest** | yes | `csr.TestName/another` |\n" + theirs + better + source, "point 1: no test csr.TestName/another"},
		{"no test named", head + table + "| **nodeattest** | yes | tests |\n" + theirs + better + source, "point 1: names no test of ours"},
		{"not listed", head + table + "| **nodeattest** | yes | no test |\n" + theirs + better + source, `lists "none" as points without a test of ours, want "1"`},
		{"nothing is better", head + table + ours + theirs + strings.Replace(better, "- [z][file]\n", "- z\n", 1) + source, "2 things that others do better, with a source"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems := compare(t, root, tt.page).problems
			if tt.want == "" {
				none(t, problems)
			} else if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, tt.want) }) {
				t.Errorf("got %q, want %q", problems, tt.want)
			}
		})
	}
}

// A comparison is the page as it was read.
type comparison struct {
	systems                          []string // of the first table
	sources                          map[string]string
	used, tests                      map[string]bool
	points, answers, unknown, better int
	untested                         []string // numbers of points
	problems                         []string
}

var (
	comparedPoint   = regexp.MustCompile(`^(\d+)\. `)
	comparedLink    = regexp.MustCompile(`\]\[([a-z0-9-]+)\]`)
	comparedSource  = regexp.MustCompile(`(?m)^\[([a-z0-9-]+)\]: (.*)$`)
	fixedVersion    = regexp.MustCompile(`^https://github\.com/[\w.-]+/[\w.-]+/(blob/([0-9a-f]{40}|(client/)?v\d+\.\d+\.\d+)/.+|commit/[0-9a-f]{40}|(issues|pull)/\d+)$`)
	withoutOurTests = regexp.MustCompile(`(?m)^Points without a test of ours: (.*)\.$`)
)

func compare(t *testing.T, root, page string) *comparison {
	t.Helper()
	c := &comparison{sources: make(map[string]string), used: make(map[string]bool), tests: make(map[string]bool)}
	for _, found := range comparedSource.FindAllStringSubmatch(page, -1) {
		c.sources[found[1]] = found[2]
	}
	sections := strings.Split(page, "\n## ")
	for _, row := range tableRows(sections[0]) {
		c.systems = append(c.systems, row[0])
	}
	for _, section := range sections[1:] {
		if found := comparedPoint.FindStringSubmatch(section); found != nil {
			c.points++
			c.point(t, root, found[1], tableRows(section))
		}
	}
	if c.points == 0 {
		c.problems = append(c.problems, "docs/comparison.md has no points")
	}
	_, better, _ := strings.Cut(page, "\n## Where others are better\n")
	for item := range strings.SplitSeq(better, "\n- ") {
		if comparedLink.MatchString(item) {
			c.better++
		}
	}
	if c.better < 3 {
		c.problems = append(c.problems, fmt.Sprintf("docs/comparison.md: %d things that others do better, with a source", c.better))
	}
	c.links(page)
	listed, want := "", "none"
	if found := withoutOurTests.FindStringSubmatch(page); found != nil {
		listed = found[1]
	}
	if len(c.untested) > 0 {
		want = strings.Join(c.untested, ", ")
	}
	if listed != want {
		c.problems = append(c.problems, fmt.Sprintf("docs/comparison.md lists %q as points without a test of ours, want %q", listed, want))
	}
	return c
}

// tableRows returns the trimmed cells of each row of a table but for its first two lines.
func tableRows(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		inner, ok := strings.CutPrefix(strings.TrimSpace(line), "| ")
		if !ok {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(inner, " |"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.Trim(cells[i], "|"))
		}
		all = append(all, cells)
	}
	return all[min(2, len(all)):]
}

// point checks the rows of one point.
func (c *comparison) point(t *testing.T, root, number string, table [][]string) {
	t.Helper()
	wrong := func(format string, args ...any) {
		c.problems = append(c.problems, "docs/comparison.md: point "+number+": "+fmt.Sprintf(format, args...))
	}
	answers := make(map[string]int)
	for _, row := range table {
		if len(row) != 3 {
			wrong("a row of %d cells, not 3", len(row))
			continue
		}
		for system := range strings.SplitSeq(row[0], ", ") {
			answers[system]++
			c.answers++
			if strings.HasPrefix(row[1], "not known") {
				c.unknown++
			}
		}
		if row[1] == "" {
			wrong("no answer for %s", row[0])
		}
		if row[0] != "**nodeattest**" {
			if !comparedLink.MatchString(row[2]) {
				wrong("no source for %s", row[0])
			}
			continue
		}
		named := quotedIn(row[2])
		if row[2] == "no test" {
			c.untested = append(c.untested, number)
		} else if len(named) == 0 {
			wrong("names no test of ours")
		}
		for _, name := range named {
			c.tests[name] = true
			if reason := notShown(t, root, name, nil); reason != "" {
				wrong("%s", reason)
			}
		}
	}
	for _, system := range append([]string{"**nodeattest**"}, c.systems...) {
		if n := answers[system]; n != 1 {
			wrong("%d answers for %s", n, system)
		}
		delete(answers, system)
	}
	for system := range answers {
		wrong("%s is not in the first table", system)
	}
}

// links checks that each link of the page is defined, leads to a fixed version and is used.
func (c *comparison) links(page string) {
	for _, found := range comparedLink.FindAllStringSubmatch(page, -1) {
		c.used[found[1]] = true
		if c.sources[found[1]] == "" {
			c.problems = append(c.problems, "docs/comparison.md: no link "+found[1])
		}
	}
	for name, to := range c.sources {
		if !c.used[name] {
			c.problems = append(c.problems, "docs/comparison.md: link "+name+" is not used")
		}
		if !fixedVersion.MatchString(to) {
			c.problems = append(c.problems, "docs/comparison.md: link "+name+" leads to no fixed version: "+to)
		}
	}
}
