package main

import "testing"

const list = `[{"vendor":"A","subject":"CN=a","sha256":"00","ends":"2040-01-01","address":"https://a.example","source":"x/y"},
{"vendor":"A","subject":"CN=b","issuer":"a","sha256":"01","ends":"2041-01-01","source":"x/z"},
{"vendor":"B","subject":"CN=c","sha256":"02","ends":"2042-01-01","address":"https://b.example","source":"x/y"}]`

func TestWithTables(t *testing.T) {
	const head = "| subject | ends | SHA-256 of the DER | fetched at | from |\n| --- | --- | --- | --- | --- |\n"
	const page = "<!-- B: make generate -->\n<!-- A: make generate -->\n| old |\n\ntext\n"
	const want = "<!-- B: make generate -->\n" + head + "| CN=c | 2042-01-01 | `02` | https://b.example | x/y |\n" +
		"<!-- A: make generate -->\n" + head + "| CN=a | 2040-01-01 | `00` | https://a.example | x/y |\n" +
		"| CN=b (issued by a) | 2041-01-01 | `01` | not known | x/z |\n\ntext\n"
	for _, from := range []string{page, want} {
		if got, err := withTables(from, []byte(list)); err != nil || got != want {
			t.Errorf("got\n%s%v", got, err)
		}
	}
	for name, row := range map[string][2]string{
		"a vendor without a table": {"<!-- A: make generate -->\n", list},
		"a table of no vendor":     {page + "<!-- C: make generate -->\n", list},
		"no list":                  {page, "[]"},
		"no JSON":                  {page, "["},
	} {
		if got, err := withTables(row[0], []byte(row[1])); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
