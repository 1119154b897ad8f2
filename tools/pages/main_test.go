package main

import "testing"

func TestReplaced(t *testing.T) {
	const text = "a\n<!-- import graph: make generate -->\n```text\nold\n```\nb\n<!-- table: make generate -->\n| old |\n\nc\n"
	for name, row := range map[string]struct{ part, want string }{
		"import graph": {"```text\nnew\n```\n", "a\n<!-- import graph: make generate -->\n```text\nnew\n```\nb\n<!-- table: make generate -->\n| old |\n\nc\n"},
		"table":        {"| new |\n", "a\n<!-- import graph: make generate -->\n```text\nold\n```\nb\n<!-- table: make generate -->\n| new |\n\nc\n"},
	} {
		if got, err := replaced(text, name, row.part); err != nil || got != row.want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	for _, bad := range []string{"a\n", "<!-- table: make generate -->\n```text\nopen\n"} {
		if got, err := replaced(bad, "table", "new\n"); err == nil {
			t.Errorf("%q: got %q", bad, got)
		}
	}
}
