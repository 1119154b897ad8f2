package costsearch

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// Tree is one element of an input: with Members, or else with Content. It is a DER element, where
// an OCTET STRING around a SEQUENCE has members, too, unless Wrap says otherwise.
type Tree struct {
	Tag     asn1.Tag
	Content []byte
	Members []*Tree
	Wrap    func(parts [][]byte) []byte // the element of its members, or its content
	Text    bool                        // Content is of printable characters, and stays so
}

// Trees reads elements of DER; nil if there is anything else.
func Trees(in []byte) (all []*Tree) {
	for rest := cryptobyte.String(in); !rest.Empty(); {
		e, content := new(Tree), cryptobyte.String(nil)
		if !rest.ReadAnyASN1(&content, &e.Tag) {
			return nil
		}
		if e.Content = content; e.Tag&0x20 != 0 || e.Tag == asn1.OCTET_STRING && bytes.HasPrefix(content, []byte{0x30}) {
			e.Members = Trees(content)
		}
		all = append(all, e)
	}
	return all
}

// Marshal is the element.
func (e *Tree) Marshal() []byte {
	parts := [][]byte{e.Content}
	if len(e.Members) > 0 {
		parts = nil
		for _, m := range e.Members {
			parts = append(parts, m.Marshal())
		}
	}
	if e.Wrap != nil {
		return e.Wrap(parts)
	}
	return tpmlab.Element(e.Tag, bytes.Join(parts, nil))
}

// Clone is a copy, whose contents are shared until Mutate changes one.
func (e *Tree) Clone() *Tree {
	c := &Tree{Tag: e.Tag, Content: e.Content, Wrap: e.Wrap, Text: e.Text}
	for _, m := range e.Members {
		c.Members = append(c.Members, m.Clone())
	}
	return c
}

// parents appends the element and those below it that have members.
func (e *Tree) parents(all []*Tree) []*Tree {
	if len(e.Members) == 0 {
		return all
	}
	all = append(all, e)
	for _, m := range e.Members {
		all = m.parents(all)
	}
	return all
}

// edge is the last element below e that has no members, or the first.
func (e *Tree) edge(first bool) *Tree {
	for len(e.Members) > 0 {
		if first {
			e = e.Members[0]
		} else {
			e = e.Members[len(e.Members)-1]
		}
	}
	return e
}

// Last is the last element below e that has no members.
func (e *Tree) Last() *Tree { return e.edge(false) }

// Mutate repeats, lengthens, nests, changes or drops one element somewhere below e, which then has
// at most so many bytes.
func (e *Tree) Mutate(r *rand.Rand, most int) {
	parents := e.parents(nil)
	if len(parents) == 0 {
		return
	}
	p := parents[r.IntN(len(parents))]
	n := r.IntN(len(p.Members))
	m, room := p.Members[n], most-len(e.Marshal())-16
	counts := []int{1, 3, 10, 100, 1000, 1 << 20}
	count := 1 + r.IntN(counts[r.IntN(len(counts))])
	switch op := r.IntN(11); {
	case op < 6:
		distinct := r.IntN(4)
		p.Members = slices.Insert(p.Members, n, m.copies(min(count, room/max(1, len(m.Marshal()))), distinct&1 != 0, distinct&2 != 0)...)
	case op < 8:
		if len(m.Members) == 0 && len(m.Content) > 0 && room > 0 {
			more := m.Content[len(m.Content)-1:]
			if m.Text && r.IntN(4) == 0 {
				more = []byte(`\u00e9`)
			}
			m.Content = slices.Concat(m.Content, bytes.Repeat(more, min(count, room/len(more))))
		}
	case op < 9:
		if last := m.edge(r.IntN(2) == 0); len(last.Content) > 0 {
			last.Content = bytes.Clone(last.Content)
			last.Content[r.IntN(len(last.Content))] ^= 1 << r.IntN(8)
		}
	case op < 10:
		if len(m.Members) > 0 {
			p.nest(m, r.IntN(len(m.Members)), min(count, 256), room)
		}
	default:
		if len(p.Members) > 1 {
			p.Members = slices.Delete(p.Members, n, n+1)
		}
	}
}

// nest puts e around member n of m, which is a member of e, with m around it, so many times, in at
// most so many bytes.
func (e *Tree) nest(m *Tree, n, count, room int) {
	inner := m.Members[n]
	outer := m.Clone()
	outer.Members[n] = &Tree{Wrap: func([][]byte) []byte { return nil }}
	for each := len(outer.Marshal()) + 4; count > 0 && each <= room; count, room = count-1, room-each {
		level := outer.Clone()
		level.Members[n] = inner
		inner = &Tree{Tag: e.Tag, Wrap: e.Wrap, Members: []*Tree{level}}
	}
	m.Members[n] = inner
}

// copies are so many copies, each with bytes of its own in the first or the last element below.
func (e *Tree) copies(count int, first, last bool) (all []*Tree) {
	for i := range count {
		c := e.Clone()
		if first {
			c.edge(true).number(i)
		}
		if last {
			c.edge(false).number(i)
		}
		all = append(all, c)
	}
	return all
}

// number changes the last bytes of the content.
func (e *Tree) number(i int) {
	n := len(e.Content)
	switch e.Content = bytes.Clone(e.Content); {
	case e.Text:
		digits := strconv.Itoa(i)
		e.Content = append(e.Content[:max(0, n-len(digits))], digits...)
	case n > 0:
		if e.Content[n-1] = byte(i) & 0x7f; n > 1 && i > 0x7f {
			e.Content[n-2] ^= byte(i >> 7)
		}
	}
}
