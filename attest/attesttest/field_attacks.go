package attesttest

import (
	"bytes"
	"fmt"
)

// maxTries is how many changes one attack tries on the fields of evidence, the outer ones first.
const maxTries = 256

// fieldAttacks change one field of the evidence, whose format they know only as far as takeApart does: a
// MAC or a signature that is compared by its own length, for example, or taken where it is missing.
func fieldAttacks(noun string) []Attack {
	each := func(name, what string, change func(f field, other []byte, try func(how string, evidence []byte))) Attack {
		return blind(noun+"-"+name, fmt.Sprintf(what, noun), func(a *answerTemplate, accepted func([]byte) bool) {
			parts, others := takeApart(a.document), map[string][]byte{}
			for _, f := range takeApart(a.sign(Stranger, a.value)).fields {
				others[f.path] = f.content
			}
			tries, done := map[string]bool{string(a.document): true}, false
			for n, f := range parts.fields {
				change(f, others[f.path], func(how string, changed []byte) {
					if done || tries[string(changed)] || len(tries) > maxTries {
						return
					}
					tries[string(changed)] = true
					a.lastChange = fmt.Sprintf(": %s, in field %d of %d, which had %d bytes", how, n+1, len(parts.fields), len(f.content))
					done = accepted(changed)
				})
			}
		})
	}
	return []Attack{
		each("field-empty", "A field of the %s is empty.", func(f field, _ []byte, try func(string, []byte)) { try("no bytes", f.with(nil)) }),
		each("field-missing", "A field of the %s is missing, or null.", func(f field, _ []byte, try func(string, []byte)) {
			for _, without := range f.without {
				try("no value", without)
			}
		}),
		each("field-prefix", "A field of the %s has only its first bytes.", func(f field, _ []byte, try func(string, []byte)) {
			for _, n := range []int{1, 2, 4, 8, 16, len(f.content) / 2, len(f.content) - 1} {
				if n > 0 && n < len(f.content) {
					try(fmt.Sprintf("the first %d bytes", n), f.with(f.content[:n]))
				}
			}
		}),
		each("field-of-one-repeated-byte", "A field of the %s has its length and one byte, repeated.", func(f field, _ []byte, try func(string, []byte)) {
			for _, c := range []byte{0, 0xff, '0', 'A'} {
				try(fmt.Sprintf("0x%02x", c), f.with(bytes.Repeat([]byte{c}, len(f.content))))
			}
		}),
		each("field-of-another-machine", "A field of the %s is another machine's.", func(f field, other []byte, try func(string, []byte)) {
			if other != nil {
				try("another machine's", f.with(other))
			}
		}),
	}
}

// wholeAttacks change the evidence as a whole.
func wholeAttacks(noun string) []Attack {
	return []Attack{
		blind(noun+"-prefix", "The "+noun+" has only its first bytes.", func(a *answerTemplate, accepted func([]byte) bool) {
			places := min(len(a.document), maxTries)
			for n := range places {
				i := max(n*len(a.document)/places, 1)
				if a.lastChange = fmt.Sprintf(": the first %d of %d bytes", i, len(a.document)); accepted(a.document[:i]) {
					return
				}
			}
		}),
		blind(noun+"-of-one-repeated-byte", "The "+noun+" has its length and one byte, repeated.", func(a *answerTemplate, accepted func([]byte) bool) {
			for _, c := range []byte{0, 0xff, ' ', '0', 'A'} {
				if a.lastChange = fmt.Sprintf(": 0x%02x", c); accepted(bytes.Repeat([]byte{c}, len(a.document))) {
					return
				}
			}
		}),
		blind(noun+"-in-another-encoding", "The "+noun+" says the same in another encoding, so that no list of the ones seen would know it again.", func(a *answerTemplate, accepted func([]byte) bool) {
			for _, s := range takeApart(a.document).spellings {
				if a.lastChange = ": " + s.how; !bytes.Equal(s.evidence, a.document) && accepted(s.evidence) {
					return
				}
			}
		}),
	}
}
