package forge

import (
	"cmp"
	_ "embed" // for the catalogue
	"errors"
	"strings"
)

// Attack is one change to something good, which F makes: a statement, a quote, an answer that
// was taken apart, a request, a text, a certificate.
type Attack[F any] struct {
	// Name is the vector's, What its description, Expect the check that refuses it, or "" if
	// none is known.
	Name, What, Expect string
	Change             F
	InCSR              bool     // Expect, or InAnswer, is a check of package csr
	Also               []string // the other checks that refuse it
	Retry              bool     // the refusal is not final

	InAnswer string // what refuses the answer, if that is another check
	Resident bool   // requires keys in the TPM
	Wanted   bool   // the policy requires a quote

	// live is the name on a running verifier, if it differs; "-" leaves the attack out there.
	live string
}

// Checks are the checks that may refuse a node's answer that has the attack in it.
func (a *Attack[F]) Checks() []string {
	if first := cmp.Or(a.InAnswer, a.Expect); first != "" {
		return append([]string{first}, a.Also...)
	}
	return nil
}

// Live is the attack's name if it is live, or "".
func (a *Attack[F]) Live() string { return a.liveAs("") }

// liveAs is Live with a prefix if there is no other name.
func (a *Attack[F]) liveAs(prefix string) string {
	if a.live == "-" {
		return ""
	}
	return cmp.Or(a.live, prefix+a.Name)
}

// catalogue has a table of attacks in each section.
//
//go:embed attacks.md
var catalogue string

// listed returns the attacks of a section of attacks.md, in order, with what makes each.
func listed[F any](section string, changes map[string]F) []Attack[F] {
	return Listed(catalogue, section, changes)
}

// Listed returns the attacks in the table of a section of a Markdown text, in order, with what
// makes each, by name.
func Listed[F any](text, section string, changes map[string]F) []Attack[F] {
	out := Rows[F](text, section)
	for i := range out {
		change, found := changes[out[i].Name]
		if !found {
			Check(errors.New("attacks on " + section + ": nothing makes " + out[i].Name))
		}
		out[i].Change = change
	}
	if len(out) != len(changes) {
		Check(errors.New("attacks on " + section + ": one is made that is not listed"))
	}
	return out
}

// Rows returns those attacks without what makes them. A row has the attack's name and, after a
// slash, Attack.live; the check that refuses it and, after semicolons, the other fields of
// Attack; and What.
func Rows[F any](text, section string) (out []Attack[F]) {
	_, text, _ = strings.Cut(text, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	_, text, _ = strings.Cut(text, "\n| --- | --- | --- |\n")
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			Check(errors.New("attacks on " + section + ": no row of three cells: " + line))
		}
		name, live, _ := strings.Cut(strings.TrimSpace(cells[1]), " / ")
		a := Attack[F]{Name: name, live: live, What: strings.TrimSpace(cells[3])}
		a.note(strings.Split(strings.TrimSpace(cells[2]), "; "))
		out = append(out, a)
	}
	return out
}

// note fills in the notes next to the check that refuses the attack.
func (a *Attack[F]) note(notes []string) {
	a.Expect = notes[0]
	for _, note := range notes[1:] {
		switch word, rest, _ := strings.Cut(note, " "); word {
		case "csr":
			a.InCSR = true
		case "also":
			a.Also = strings.Fields(rest)
		case "retry":
			a.Retry = true
		case "in-answers":
			a.InAnswer = rest
		case "resident":
			a.Resident = true
		case "wanted":
			a.Wanted = true
		default:
			Check(errors.New(a.Name + ": no note is called " + word))
		}
	}
}
