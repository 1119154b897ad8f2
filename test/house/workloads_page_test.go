package house_test

import (
	"strings"
	"testing"
)

// TestWorkloadsPage: the table of refusals has each check of package claims: a caller of a service reads
// its name in the answer.
func TestWorkloadsPage(t *testing.T) {
	none(t, refusalProblems(readFile(t, "docs/workloads.md"), namedChecks(t, ".")))
}

func TestWorkloadsPageBites(t *testing.T) {
	page := "| 401 | `one`, `two` | why |\n`three`\n"
	checks := []namedCheck{{"one", "claims.checkOne"}, {"two", "claims.CheckTwo"}, {"three", "claims.checkThree"}, {"four", "jws.checkFour"}}
	exactly(t, refusalProblems(page, checks), "docs/workloads.md: no row has `three` of claims.checkThree")
}

func refusalProblems(page string, checks []namedCheck) (problems []string) {
	var rows strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| 4") || strings.HasPrefix(line, "| 5") {
			rows.WriteString(line)
		}
	}
	for _, c := range checks {
		if strings.HasPrefix(c.name, "claims.") && !strings.Contains(rows.String(), "`"+c.text+"`") {
			problems = append(problems, "docs/workloads.md: no row has `"+c.text+"` of "+c.name)
		}
	}
	return problems
}
