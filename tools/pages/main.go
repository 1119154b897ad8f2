// Pages writes again the generated parts of the repository's pages.
//
//	pages ROOT
//
// Below ROOT, the repository: in CONTRIBUTING.md the graph of imports; in docs/vendor-roots.md
// the tables, from kube/program/node/vendor-roots.json; and docs/architecture.svg, from
// docs/architecture.txt. Parts of a page stand after a comment that names them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pages ROOT")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	graph, err := imports(root)
	if err != nil {
		return err
	}
	err = rewrite(filepath.Join(root, "CONTRIBUTING.md"), "CONTRIBUTING.md", func(page string) (string, error) {
		return replaced(page, "import graph", "```text\n"+graph+"```\n")
	})
	if err != nil {
		return err
	}
	list, err := os.ReadFile(filepath.Join(root, "kube", "program", "node", "vendor-roots.json"))
	if err != nil {
		return err
	}
	err = rewrite(filepath.Join(root, "docs", "vendor-roots.md"), "docs/vendor-roots.md", func(page string) (string, error) {
		return withTables(page, list)
	})
	if err != nil {
		return err
	}
	source, err := os.ReadFile(filepath.Join(root, "docs", "architecture.txt"))
	if err != nil {
		return err
	}
	picture, err := drawn(string(source))
	if err != nil {
		return fmt.Errorf("docs/architecture.txt: %w", err)
	}
	return os.WriteFile(filepath.Join(root, "docs", "architecture.svg"), []byte(picture), 0o644)
}

// rewrite changes a file's text.
func rewrite(file, name string, change func(string) (string, error)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := change(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

// marker begins a part of a page that a generator writes.
const marker = "<!-- %s: make generate -->\n"

// replaced is a page with another text for the part of a name: the code block or the table that
// stands after the comment with the name.
func replaced(page, name, part string) (string, error) {
	start := fmt.Sprintf(marker, name)
	before, rest, found := strings.Cut(page, start)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(start))
	}
	after := rest
	if fenced, is := strings.CutPrefix(rest, "```text\n"); is {
		_, after, is = strings.Cut(fenced, "```\n")
		if !is {
			return "", fmt.Errorf("the block of %s has no end", name)
		}
	}
	for strings.HasPrefix(after, "|") {
		_, after, _ = strings.Cut(after, "\n")
	}
	return before + start + part + after, nil
}
