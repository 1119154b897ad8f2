package house_test

import (
	"fmt"
	"strings"
	"testing"
)

// mostLines are the pages that are read whole, with the most lines that they may have.
var mostLines = map[string]int{"CHANGELOG.md": 60, "CONTRIBUTING.md": 100, "docs/choices.md": 130}

// TestPageSizes: a page that is to be read whole stays short.
func TestPageSizes(t *testing.T) {
	for page, most := range mostLines {
		none(t, sizeProblems(page, readFile(t, page), most))
	}
}

func TestPageSizesBite(t *testing.T) {
	none(t, sizeProblems("page.md", "one\ntwo\n", 2))
	exactly(t, sizeProblems("page.md", "one\ntwo\nthree\n", 2), "page.md: 3 lines, more than 2")
}

func sizeProblems(page, text string, most int) []string {
	if lines := strings.Count(text, "\n"); lines > most {
		return []string{fmt.Sprintf("%s: %d lines, more than %d", page, lines, most)}
	}
	return nil
}
