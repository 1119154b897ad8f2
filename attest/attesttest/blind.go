package attesttest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
)

// blindAttacks change a document, or the evidence of WorldOptions.Prove, without knowledge of its
// format. Each tries many changes, until one is accepted.
func (w *World) blindAttacks() []Attack {
	noun, attacks := "document", []Attack(nil)
	if w.options.Documents == nil {
		noun = "evidence"
	} else {
		attacks = append(attacks, blind("document-value-replaced", "Machine-1's document is over another value, which was replaced by the right one.", func(a *answerTemplate, accepted func([]byte) bool) {
			other := bytes.Clone(a.value)
			other[a.size/2] ^= 1 // flip one bit, so that most of any encoding stays the same
			document := a.sign(MachineOne, other)
			if tryReplacements(document, other[:a.size], a.value[:a.size], accepted) {
				return
			}
			for range 32 { // signatures may have several lengths
				if right := a.sign(MachineOne, a.value); len(right) == len(document) {
					trySplices(document, right, accepted)
					return
				}
			}
		}))
	}
	attacks = append(attacks, blind(noun+"-bytes-not-covered", "A byte of the "+noun+" was changed.", func(a *answerTemplate, accepted func([]byte) bool) {
		a.tryByteChanges(a.document, accepted)
	}), blind(noun+"-identity-replaced", "The "+noun+" is a stranger's, and in it the identity was replaced by machine-1's.", func(a *answerTemplate, accepted func([]byte) bool) {
		document := a.sign(Stranger, a.value)
		for _, d := range differences(a.identity(Stranger), a.identity(MachineOne)) {
			if tryReplacements(document, []byte(d[0]), []byte(d[1]), accepted) {
				return
			}
		}
	}))
	return slices.Concat(attacks, wholeAttacks(noun), fieldAttacks(noun))
}

// answerTemplate is machine-1's answer without the document.
type answerTemplate struct {
	document   []byte // that it had
	value      []byte // the document must cover its first size bytes
	size       int
	identity   func(machine string) string
	sign       func(machine string, value []byte) []byte
	request    func(document []byte) *csr.Request
	lastChange string // for the fault
}

// template returns an answerTemplate for documents, or for the evidence of WorldOptions.Prove.
func (a *attempt) template(ctx context.Context) *answerTemplate {
	applicant, d := a.applicant(requestOptions{}), a.options.Documents
	if d == nil {
		prove := func(machine string) *csr.Bundle {
			applicant.Machine = machine
			bundle, err := a.options.Prove(ctx, a.provider, applicant)
			if machine != MachineOne && csr.Decide(err).Verdict == csr.VerdictDeny {
				return &csr.Bundle{} // a provider that challenges refuses its hello
			}
			return must(bundle, err)
		}
		bundle := prove(MachineOne)
		return &answerTemplate{document: bundle.Data, identity: func(machine string) string { return machine },
			sign:    func(machine string, _ []byte) []byte { return prove(machine).Data },
			request: func(evidence []byte) *csr.Request { bundle.Data = evidence; return applicant.filed(bundle) }}
	}
	f := a.forge(ctx, applicant)
	value := f.rightValue()
	b := &answerTemplate{document: f.sign(ctx, MachineOne, value), value: value, size: len(value),
		identity: func(machine string) string { return string(d.identity(ctx, machine)) },
		sign:     func(machine string, value []byte) []byte { return f.sign(ctx, machine, value) },
		request:  func(document []byte) *csr.Request { return applicant.filed(f.enclose(ctx, document)) }}
	for _, s := range d.Kind.Describe().Statements {
		b.size = min(b.size, s.Size)
	}
	return b
}

// blind returns an attack that tries documents until one is accepted, and files the last one.
func blind(name, what string, search func(a *answerTemplate, accepted func(document []byte) bool)) Attack {
	return Attack{Name: name, Class: classStatement, Description: what, make: func(ctx context.Context, a *attempt) (request *csr.Request, err error) {
		template := a.template(ctx)
		err = errNotApplicable("no part of the evidence can be changed in this way")
		search(template, func(document []byte) bool {
			changed := template.carried(document)
			if changed == nil {
				return false
			}
			request, err = changed, nil
			return (&Attack{Class: classStatement}).faultOf(a.issue(ctx, a.provider, request)) != ""
		})
		a.lastChange = template.lastChange
		return request, err
	}}
}

// carried returns the request with a document, or nil if no message can carry it: it is empty, or larger
// than documents may be.
func (a *answerTemplate) carried(document []byte) (request *csr.Request) {
	var err error
	defer caught(&err)
	return a.request(document)
}

// maxPlaces is how many bytes of a document are changed, one at a time.
const maxPlaces = 256

// tryByteChanges tries documents with one byte changed. A byte may have one unused bit (base64
// padding), so two different bits are tried.
func (a *answerTemplate) tryByteChanges(document []byte, accepted func([]byte) bool) {
	places := min(len(document), maxPlaces)
	for n := range places {
		i := n * len(document) / places
		with := func(bit byte) []byte { return splice(document, i, i+1, []byte{document[i] ^ bit}) }
		a.lastChange = fmt.Sprintf(", at byte %d of %d", i, len(document))
		if accepted(with(1)) && accepted(with(4)) {
			return
		}
	}
}

// differences returns the pairs of text to replace for another identity: all of it, and each part in
// which the two differ.
func differences(was, is string) [][2]string {
	out := [][2]string{{was, is}}
	separates := func(c rune) bool { return c == ':' || c == '/' }
	old, with := strings.FieldsFunc(was, separates), strings.FieldsFunc(is, separates)
	for i := range min(len(old), len(with)) {
		if old[i] != with[i] {
			out = append(out, [2]string{old[i], with[i]})
		}
	}
	return out
}

// encodings are the forms in which a document may contain a value.
var encodings = []func([]byte) string{
	func(b []byte) string { return string(b) },
	hex.EncodeToString,
	func(b []byte) string { return strings.ToUpper(hex.EncodeToString(b)) },
	base64.RawStdEncoding.EncodeToString,
	base64.RawURLEncoding.EncodeToString,
}

// base64Text finds text that may be base64 of a part of the document.
var base64Text = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}`)

// tryReplacements tries documents in which a value is replaced by another in each encoding: everywhere
// at once and at one place at a time, also inside base64.
func tryReplacements(document, was, is []byte, accepted func([]byte) bool) bool {
	for _, encode := range encodings {
		old, with := []byte(encode(was)), []byte(encode(is))
		parts := bytes.Split(document, old)
		if len(parts) > 1 && accepted(bytes.Join(parts, with)) {
			return true
		}
		for i := range len(parts) - 1 {
			if len(parts) > 2 && accepted(slices.Concat(bytes.Join(parts[:i+1], old), with, bytes.Join(parts[i+1:], old))) {
				return true
			}
		}
	}
	return slices.ContainsFunc(base64Text.FindAllIndex(document, -1), func(at []int) bool {
		text, encoding := string(document[at[0]:at[1]]), base64.RawStdEncoding
		if strings.ContainsAny(text, "-_") {
			encoding = base64.RawURLEncoding
		}
		inside, err := encoding.DecodeString(text)
		return err == nil && tryReplacements(inside, was, is, func(b []byte) bool {
			return accepted(slices.Concat(document[:at[0]], []byte(encoding.EncodeToString(b)), document[at[1]:]))
		})
	})
}

// trySplices tries a document with some of the places in which another one differs, but not all. It
// replaces values in encodings that tryReplacements does not know.
func trySplices(document, other []byte, accepted func([]byte) bool) {
	var places [][2]int
	for i := range document {
		switch n := len(places); {
		case document[i] == other[i]:
		case n > 0 && places[n-1][1] == i:
			places[n-1][1]++
		default:
			places = append(places, [2]int{i, i + 1})
		}
	}
	tries := 0
	for width := 1; width < len(places); width++ {
		for n := 0; n+width <= len(places) && tries < maxPlaces; n++ {
			from, to := places[n][0], places[n+width-1][1]
			if tries++; accepted(slices.Concat(document[:from], other[from:to], document[to:])) {
				return
			}
		}
	}
}
