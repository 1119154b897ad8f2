package tpmlab

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Tree is one DER element: with Members where it is constructed, or an OCTET STRING around a
// SEQUENCE, else with Content.
type Tree struct {
	Tag     asn1.Tag
	Content []byte
	Members []*Tree
}

// Trees reads elements.
func Trees(in []byte) []*Tree { return trees(in, 16) }

func trees(in cryptobyte.String, levels int) (all []*Tree) {
	for !in.Empty() {
		e, content := new(Tree), cryptobyte.String(nil)
		if !in.ReadAnyASN1(&content, &e.Tag) {
			return nil
		}
		if e.Content = content; levels > 0 && (e.Tag&0x20 != 0 || e.Tag == asn1.OCTET_STRING && bytes.HasPrefix(content, []byte{0x30})) {
			e.Members = trees(content, levels-1)
		}
		all = append(all, e)
	}
	return all
}

// Marshal is the DER.
func (e *Tree) Marshal() []byte {
	content := e.Content
	if len(e.Members) > 0 {
		content = nil
		for _, m := range e.Members {
			content = append(content, m.Marshal()...)
		}
	}
	return Element(e.Tag, content)
}

// Clone is a copy, whose contents are shared until Mutate changes one.
func (e *Tree) Clone() *Tree {
	c := &Tree{Tag: e.Tag, Content: e.Content}
	for _, m := range e.Members {
		c.Members = append(c.Members, m.Clone())
	}
	return c
}

// parents are the element and those below it that have members.
func (e *Tree) parents() (all []*Tree) {
	if len(e.Members) == 0 {
		return nil
	}
	all = append(all, e)
	for _, m := range e.Members {
		all = append(all, m.parents()...)
	}
	return all
}

// Last is the last element below e that has no members.
func (e *Tree) Last() *Tree {
	for len(e.Members) > 0 {
		e = e.Members[len(e.Members)-1]
	}
	return e
}

// Mutate repeats, lengthens, changes or drops one element somewhere below e, which then has at
// most so many bytes.
func (e *Tree) Mutate(r *rand.Rand, most int) {
	parents := e.parents()
	if len(parents) == 0 {
		return
	}
	p := parents[r.IntN(len(parents))]
	n := r.IntN(len(p.Members))
	m, room := p.Members[n], most-len(e.Marshal())-16
	counts := []int{1, 3, 10, 100, 1000, 1 << 20}
	count := 1 + r.IntN(counts[r.IntN(len(counts))])
	switch op := r.IntN(10); {
	case op < 6:
		p.Members = slices.Insert(p.Members, n, m.copies(min(count, room/len(m.Marshal())), r.IntN(2) == 0)...)
	case op < 8:
		if len(m.Members) == 0 && len(m.Content) > 0 && room > 0 {
			m.Content = slices.Concat(m.Content, bytes.Repeat(m.Content[len(m.Content)-1:], min(count, room)))
		}
	case op < 9:
		if last := m.Last(); len(last.Content) > 0 {
			last.Content = bytes.Clone(last.Content)
			last.Content[r.IntN(len(last.Content))] ^= 1 << r.IntN(8)
		}
	default:
		if len(p.Members) > 1 {
			p.Members = slices.Delete(p.Members, n, n+1)
		}
	}
}

// copies are so many copies, each with last bytes of its own if they are distinct.
func (e *Tree) copies(count int, distinct bool) (all []*Tree) {
	for i := range count {
		c := e.Clone()
		if last := c.Last(); distinct && len(last.Content) > 0 {
			last.Content = bytes.Clone(last.Content)
			last.Content[len(last.Content)-1] = byte(i) & 0x7f
			if len(last.Content) > 1 && i > 0x7f {
				last.Content[len(last.Content)-2] ^= byte(i >> 7)
			}
		}
		all = append(all, c)
	}
	return all
}
