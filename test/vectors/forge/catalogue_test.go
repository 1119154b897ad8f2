package forge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListed(t *testing.T) {
	const head = "# Attacks\n\n## others\n\n| attack |\n\n## some\n\n| attack | refused by | what |\n| --- | --- | --- |\n"
	rows := head + "| b / live-b | check; retry; csr; also x y; resident; wanted; in-answers z | B. |\n| a | | A. |\n\n## more\n"
	var got []Attack[int]
	if err := caught(func() { got = Listed(rows, "some", map[string]int{"a": 1, "b": 2}) }); err != nil {
		t.Fatal(err)
	}
	want := []Attack[int]{
		{Name: "b", live: "live-b", Expect: "check", What: "B.", Change: 2, Retry: true, InCSR: true, Also: []string{"x", "y"},
			Resident: true, Wanted: true, InAnswer: "z"},
		{Name: "a", What: "A.", Change: 1},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Attack[int]{})); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct {
		name, text, section string
		changes             map[string]int
	}{
		{"a section that is not there", rows, "none", map[string]int{"a": 1}},
		{"an attack that nothing makes", rows, "some", map[string]int{"a": 1}},
		{"an attack that is not listed", rows, "some", map[string]int{"a": 1, "b": 2, "c": 3}},
		{"a note that nobody knows", head + "| a | check; never | A. |\n", "some", map[string]int{"a": 1}},
		{"a row of two cells", head + "| a | A. |\n", "some", map[string]int{"a": 1}},
		{"a cell too many", head + "| a | check | A. | B. |\n", "some", map[string]int{"a": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if caught(func() { Listed(tt.text, tt.section, tt.changes) }) == nil {
				t.Error("no failure")
			}
		})
	}
}

func caught(f func()) (err error) {
	defer Caught(&err)
	f()
	return nil
}
