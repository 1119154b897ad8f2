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

// blindAttacks know nothing of the format of a document, or of the evidence that
// WorldOptions.Prove makes. Each tries many, until one gets in.
func (w *World) blindAttacks() []Attack {
	noun, attacks := "document", []Attack(nil)
	if w.options.Documents == nil {
		noun = "evidence"
	} else {
		attacks = append(attacks, blind("document-value-replaced", "Machine-1's document is over another value, in whose place the right one was written.", func(b *blank, getsIn func([]byte) bool) {
			other := bytes.Clone(b.value) // but for one bit, so that little of what spells it is another
			other[b.size/2] ^= 1
			document := b.sign(MachineOne, other)
			if respelled(document, other[:b.size], b.value[:b.size], getsIn) {
				return
			}
			for range 32 { // signatures may have several lengths
				if right := b.sign(MachineOne, b.value); len(right) == len(document) {
					spliced(document, right, getsIn)
					return
				}
			}
		}))
	}
	return append(attacks, blind(noun+"-bytes-not-covered", "A byte of the "+noun+" was changed.", func(b *blank, getsIn func([]byte) bool) {
		b.withAnotherByte(b.sign(MachineOne, b.value), getsIn)
	}), blind(noun+"-identity-replaced", "The "+noun+" is a stranger's, and machine-1's identity was written in place of the stranger's.", func(b *blank, getsIn func([]byte) bool) {
		document := b.sign(Stranger, b.value)
		for _, d := range differences(b.identity(Stranger), b.identity(MachineOne)) {
			if respelled(document, []byte(d[0]), []byte(d[1]), getsIn) {
				return
			}
		}
	}))
}

// blank is an answer of machine-1 that lacks its document.
type blank struct {
	value    []byte // that the document must cover the first size bytes of
	size     int
	identity func(machine string) string
	sign     func(machine string, value []byte) []byte
	filled   func(document []byte) *csr.Request
	place    string // what was changed last
}

// blank makes one for the kind of documents, or for what WorldOptions.Prove makes.
func (a *attempt) blank(ctx context.Context) *blank {
	applicant, d := a.applicant(wish{}), a.options.Documents
	if d == nil {
		prove := func(machine string) *csr.Bundle {
			applicant.Machine = machine
			return must(a.options.Prove(ctx, a.provider, applicant))
		}
		bundle := prove(MachineOne)
		return &blank{identity: func(machine string) string { return machine },
			sign:   func(machine string, _ []byte) []byte { return prove(machine).Data },
			filled: func(evidence []byte) *csr.Request { bundle.Data = evidence; return applicant.filed(bundle) }}
	}
	f := a.forge(ctx, applicant)
	b := &blank{value: f.right(), identity: func(machine string) string { return string(d.identity(ctx, machine)) },
		sign:   func(machine string, value []byte) []byte { return f.sign(ctx, machine, value) },
		filled: func(document []byte) *csr.Request { return applicant.filed(f.around(ctx, document)) }}
	b.size = len(b.value)
	for _, s := range d.Kind.Describe().Statements {
		b.size = min(b.size, s.Size)
	}
	return b
}

// blind is an attack that searches for a document that gets in: the last one that it tries
// is what it files.
func blind(name, what string, search func(b *blank, getsIn func(document []byte) bool)) Attack {
	return Attack{Name: name, Class: classStatement, Description: what, make: func(ctx context.Context, a *attempt) (request *csr.Request, err error) {
		b := a.blank(ctx)
		err = errShut("no document says what would be replaced")
		search(b, func(document []byte) bool {
			request, err = b.filled(document), nil
			return faultOf(classStatement, a.issue(ctx, a.provider, request)) != ""
		})
		a.place = b.place
		return request, err
	}}
}

// maxPlaces is how many bytes of a document are changed, one at a time.
const maxPlaces = 256

// withAnotherByte tries documents with one byte changed. A byte may have one bit that is free,
// as the last one of base64 does, but not two.
func (b *blank) withAnotherByte(document []byte, getsIn func([]byte) bool) {
	places := min(len(document), maxPlaces)
	for n := range places {
		i := n * len(document) / places
		with := func(bit byte) []byte {
			d := bytes.Clone(document)
			d[i] ^= bit
			return d
		}
		b.place = fmt.Sprintf(", at byte %d of %d", i, len(document))
		if getsIn(with(1)) && getsIn(with(4)) {
			return
		}
	}
}

// differences are two identities, and the parts in which they differ.
func differences(was, is string) [][2]string {
	out := [][2]string{{was, is}}
	parts := func(s string) []string {
		return strings.FieldsFunc(s, func(c rune) bool { return c == ':' || c == '/' })
	}
	for i, old := range parts(was) {
		if with := parts(is); len(with) > i && with[i] != old {
			out = append(out, [2]string{old, with[i]})
		}
	}
	return out
}

// spellings are how a document may write a value.
var spellings = []func([]byte) string{
	func(b []byte) string { return string(b) },
	hex.EncodeToString,
	func(b []byte) string { return strings.ToUpper(hex.EncodeToString(b)) },
	base64.RawStdEncoding.EncodeToString,
	base64.RawURLEncoding.EncodeToString,
}

// encoded finds what may be base64 of more than a value.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}`)

// respelled tries documents in which a value is replaced by another: everywhere at once, and at
// one place at a time, also inside base64.
func respelled(document, was, is []byte, getsIn func([]byte) bool) bool {
	for _, spell := range spellings {
		old, with := []byte(spell(was)), []byte(spell(is))
		parts := bytes.Split(document, old)
		if len(parts) > 1 && getsIn(bytes.Join(parts, with)) {
			return true
		}
		for i := range len(parts) - 1 {
			if len(parts) > 2 && getsIn(slices.Concat(bytes.Join(parts[:i+1], old), with, bytes.Join(parts[i+1:], old))) {
				return true
			}
		}
	}
	return slices.ContainsFunc(encoded.FindAllIndex(document, -1), func(at []int) bool {
		text, encoding := string(document[at[0]:at[1]]), base64.RawStdEncoding
		if strings.ContainsAny(text, "-_") {
			encoding = base64.RawURLEncoding
		}
		inside, err := encoding.DecodeString(text)
		return err == nil && respelled(inside, was, is, func(b []byte) bool {
			return getsIn(slices.Concat(document[:at[0]], []byte(encoding.EncodeToString(b)), document[at[1]:]))
		})
	})
}

// spliced tries a document with a part of another one in it: one place where they differ, or
// some in a row, but not all. It finds what is spelt in a way that respelled does not know.
func spliced(document, other []byte, getsIn func([]byte) bool) {
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
			if tries++; getsIn(slices.Concat(document[:from], other[from:to], document[to:])) {
				return
			}
		}
	}
}
