package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const small = `# two boxes in a zone, and one next to it
size 600 300
zone z 0 0 300 300 Zone
box a 10 50 200 A & B
  a <line>
box b 10 200 200 B
box c 400 50 150 C

arrow a c 60 over\there
arrow c a 70 back
arrow a b 100 down
arrow b a 90 up
`

func TestDrawn(t *testing.T) {
	got, err := drawn(small)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<rect x="0" y="0" width="300" height="300"`, `<rect x="10" y="50" width="200" height="54"`, ">A &amp; B<", ">a &lt;line&gt;<",
		`"M210 60L400 60"`, `"M400 70L210 70"`, `"M100 104L100 200"`, `"M90 200L90 104"`, `<text x="305" y="38" text-anchor="middle">over<`, `<text x="305" y="55" text-anchor="middle">there<`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	d := xml.NewDecoder(strings.NewReader(got))
	for err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestDrawnRefuses(t *testing.T) {
	for name, row := range map[string]struct{ old, with, want string }{
		"a box over a box":       {"\narrow a c", "\nbox d 450 60 50 D\narrow a c", "d and c overlap"},
		"a box half in its zone": {"box c 400", "box c 290", "c and z overlap"},
		"a box over the title":   {"box a 10 50", "box a 10 20", "a and z overlap"},
		"a box out of the zone":  {"box b 10 200", "box b 10 270", "b is not in the picture"},
		"a wide title":           {"A & B", "A & B, and what is right of them", "does not fit"},
		"a wide line":            {"<line>", "<line that is too long for it>", "does not fit"},
		"a wide label":           {"over", "over there, on the other side", "does not fit"},
		"an arrow past a box":    {"a c 60", "a c 110", "neither next to"},
		"an arrow to none":       {"arrow a c", "arrow a d", `to "d"`},
		"no number":              {"size 600", "size wide", "wide"},
		"text without a box":     {"box a 10 50 200 A & B\n", "", "text without a box"},
		"a word of no meaning":   {"box c", "circle c", "circle"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(small, row.old, row.with, 1)
			if _, err := drawn(text); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}
