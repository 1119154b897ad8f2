package house_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGuards: the table of the checks of each kind of evidence has a column for each kind in the source
// and for each of its roads, and each cell names tests or vectors that exist, or gives a reason.
func TestGuards(t *testing.T) {
	none(t, guardProblems(t, ".", readFile(t, "docs/kinds-of-evidence.md")))
}

func TestGuardsBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"attest/tpm/kind.go":                "package tpm\n\nconst Provider = \"tpm\"\n\nvar roads = []road{{Road: attest.RoadAK}, {Road: attest.RoadEK}}\n",
		"cloud/rack/kind.go":                "package rack\n\nconst Provider = \"rack\"\n",
		"cloud/rack/kind_test.go":           "package rack\n\nconst Provider = \"no kind\"\n\nfunc TestDates(t *testing.T) {}\n",
		"csr/names.go":                      "package csr\n\nconst providerInsecure = \"insecure\"\n",
		"vectors/data/binding/of-ever.json": `{"expect": "dates"}`,
	})
	const good = "| guard | tpm, ak | tpm, ek | rack | insecure |\n| --- | --- | --- | --- | --- |\n"
	row := func(cells ...string) string { return "| dates | " + strings.Join(cells, " | ") + " |\n" }
	test, vector, reason := "`cloud/rack.TestDates`", "`binding/of-ever`", "none: there is no evidence"
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"good":                {good + row(test, vector, test+", "+vector, reason), nil},
		"no table":            {"# Page\n", []string{"docs/kinds-of-evidence.md: no table of guards"}},
		"a kind left out":     {"| guard | tpm, ak | tpm, ek | insecure |\n| --- | --- | --- | --- |\n" + row(test, test, reason), []string{"docs/kinds-of-evidence.md: guards of [insecure tpm, ak tpm, ek], and the source has [insecure rack tpm, ak tpm, ek]"}},
		"a road left out":     {"| guard | tpm, ak | rack | insecure |\n| --- | --- | --- | --- |\n" + row(test, test, reason), []string{"docs/kinds-of-evidence.md: guards of [insecure rack tpm, ak], and the source has [insecure rack tpm, ak tpm, ek]"}},
		"an empty cell":       {good + row(test, test, "", reason), []string{"docs/kinds-of-evidence.md: dates, rack: neither a test nor a reason"}},
		"a dash":              {good + row(test, test, "–", reason), []string{"docs/kinds-of-evidence.md: dates, rack: neither a test nor a reason"}},
		"none without reason": {good + row(test, test, "none:", reason), []string{"docs/kinds-of-evidence.md: dates, rack: neither a test nor a reason"}},
		"a test that is gone": {good + row("`cloud/rack.TestTimes`", test, test, reason), []string{"docs/kinds-of-evidence.md: dates, tpm, ak: no test cloud/rack.TestTimes"}},
		"a vector, gone":      {good + row("`binding/gone`", test, test, reason), []string{"docs/kinds-of-evidence.md: dates, tpm, ak: no vector binding/gone"}},
		"a cell too few":      {good + row(test, test, test), []string{"docs/kinds-of-evidence.md: dates: 3 cells, not 4"}},
	} {
		t.Run(name, func(t *testing.T) { exactly(t, guardProblems(t, root, c.page), c.want...) })
	}
}

// guardTable is the table, whose first column has the guards.
var guardTable = regexp.MustCompile(`(?m)^\| guard \|(.*)\|\n\|[ |-]*\n((?:\|.*\n)+)`)

func guardProblems(t *testing.T, root, page string) (problems []string) {
	t.Helper()
	wrong := func(format string, args ...any) {
		problems = append(problems, "docs/kinds-of-evidence.md: "+fmt.Sprintf(format, args...))
	}
	found := guardTable.FindStringSubmatch(page)
	if found == nil {
		return []string{"docs/kinds-of-evidence.md: no table of guards"}
	}
	kinds := cellsOf(found[1])
	if got, want := slices.Sorted(slices.Values(kinds)), kindsOf(t, root); !slices.Equal(got, want) {
		wrong("guards of %v, and the source has %v", got, want)
		return problems
	}
	for line := range strings.Lines(found[2]) {
		cells := cellsOf(strings.Trim(strings.TrimSpace(line), "|"))
		guard, cells := cells[0], cells[1:]
		if len(cells) != len(kinds) {
			wrong("%s: %d cells, not %d", guard, len(cells), len(kinds))
			continue
		}
		for i, cell := range cells {
			names := quotedIn(cell)
			reason, reasoned := strings.CutPrefix(cell, "none: ")
			if len(names) == 0 && (!reasoned || len(reason) < len("a reason")) {
				wrong("%s, %s: neither a test nor a reason", guard, kinds[i])
			}
			for _, name := range names {
				_, _, isTest := testFiles(t, root, name)
				_, isVector := expectedOf(t, root, name)
				if fault := notShown(t, root, name, nil); fault != "" && (isTest || !isVector) {
					wrong("%s, %s: %s", guard, kinds[i], fault)
				}
			}
		}
	}
	return problems
}

func cellsOf(row string) (cells []string) {
	for cell := range strings.SplitSeq(row, "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

var (
	kindName = regexp.MustCompile(`(?m)^(?:const |\t)(?:P|p)rovider(?:Insecure)?\s*=\s*"([a-z0-9-]+)"`)
	roadName = regexp.MustCompile(`\bRoad: attest\.Road(AK|EK)\b`)
)

// kindsOf finds the kinds of evidence in the source, by the constants with their names, and their roads if
// they have several.
func kindsOf(t *testing.T, root string) (kinds []string) {
	t.Helper()
	for _, module := range []string{"attest", "cloud", "csr", "kube"} {
		err := filepath.WalkDir(filepath.Join(root, module), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // a module that a fixture lacks
				return fs.SkipAll
			case err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return err
			}
			text := readFile(t, path)
			found := kindName.FindStringSubmatch(text)
			if found == nil {
				return nil
			}
			roads := roadName.FindAllStringSubmatch(text, -1)
			if len(roads) == 0 {
				kinds = append(kinds, found[1])
			}
			for _, road := range roads {
				kinds = append(kinds, found[1]+", "+strings.ToLower(road[1]))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
