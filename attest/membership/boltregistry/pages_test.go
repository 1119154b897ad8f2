package boltregistry

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
)

// paged is a database whose pages a test changes.
type paged struct {
	text             []byte
	size             int
	head, other      []byte // the newer one and the older one
	root, free       []byte // pages
	branch, leaf     []byte // of the names, and the branch's first child
	inline, external []byte // elements of the root: the buckets meta and names
}

func (p *paged) page(id uint64) []byte {
	from := int(id) * p.size
	return p.text[from : from+(1+int(order.Uint32(p.text[from+12:])))*p.size]
}

// value is the value of an element of a leaf, which is where it is in its page.
func value(e []byte) []byte {
	from := order.Uint32(e[4:]) + order.Uint32(e[8:])
	return e[from : from+order.Uint32(e[12:])]
}

func newPaged(t *testing.T, good []byte) *paged {
	t.Helper()
	p := &paged{text: bytes.Clone(good), size: os.Getpagesize()}
	p.head, p.other = p.text[pageHead:], p.text[p.size+pageHead:]
	if transaction(p.head) < transaction(p.other) {
		p.head, p.other = p.other, p.head
	}
	p.root, p.free = p.page(order.Uint64(p.head[16:])), p.page(order.Uint64(p.head[32:]))
	for i := range int(order.Uint16(p.root[10:])) {
		e := p.root[pageHead+i*element:]
		switch key := e[order.Uint32(e[4:]):][:order.Uint32(e[8:])]; {
		case bytes.Equal(key, bucketMeta):
			p.inline = e
		case bytes.Equal(key, bucketNames):
			p.external = e
		}
	}
	p.branch = p.page(order.Uint64(value(p.external)))
	if order.Uint16(p.branch[8:]) != kindBranch || order.Uint64(value(p.inline)) != 0 || order.Uint16(p.free[10:]) < 2 {
		t.Fatal("the file has no branch, no bucket in a page or no free pages: the test proves nothing")
	}
	p.leaf = p.page(order.Uint64(p.branch[pageHead+8:]))
	return p
}

// lastElement is the last element of the last leaf.
func (p *paged) lastElement() []byte {
	at := func(page []byte, i int) []byte { return page[pageHead+i*element:] }
	last := func(page []byte) []byte { return at(page, int(order.Uint16(page[10:]))-1) }
	page := p.page(order.Uint64(value(last(p.root))))
	for order.Uint16(page[8:]) == kindBranch {
		page = p.page(order.Uint64(last(page)[8:]))
	}
	return last(page)
}

// sealed writes the checksums of the heads.
func (p *paged) sealed() {
	order.PutUint64(p.head[56:], sum(p.head))
	order.PutUint64(p.other[56:], sum(p.other))
}

// Whatever a page says that does not fit the others is refused, even where the heads' checksums
// are right.
func TestPagesThatDoNotHangTogether(t *testing.T) {
	_, good, _ := closedFile(t, 60)
	add := func(b []byte, n int) { order.PutUint64(b, order.Uint64(b)+uint64(n)) }
	for name, change := range map[string]func(p *paged){
		"the newer head":                       func(p *paged) { p.head[20]++ },
		"the older head":                       func(p *paged) { p.other[4]++ },
		"the newer head's checksum":            func(p *paged) { p.head[63]++ },
		"heads of one write":                   func(p *paged) { add(p.other[48:], 1); p.sealed() },
		"heads two writes apart":               func(p *paged) { add(p.other[48:], -1); p.sealed() },
		"fewer pages":                          func(p *paged) { add(p.head[40:], -1); p.sealed() },
		"an unused page":                       func(p *paged) { add(p.head[40:], 1); p.sealed() },
		"more pages than the file":             func(p *paged) { add(p.head[40:], len(p.text)/p.size); p.sealed() },
		"no page but the heads":                func(p *paged) { order.PutUint64(p.head[40:], 1); p.sealed() },
		"the root outside":                     func(p *paged) { order.PutUint64(p.head[16:], 1<<40); p.sealed() },
		"the root is a head":                   func(p *paged) { order.PutUint64(p.head[16:], 1); p.sealed() },
		"the root is the list":                 func(p *paged) { order.PutUint64(p.head[16:], order.Uint64(p.head[32:])); p.sealed() },
		"the list is the root":                 func(p *paged) { order.PutUint64(p.head[32:], order.Uint64(p.head[16:])); p.sealed() },
		"no list":                              func(p *paged) { order.PutUint64(p.head[32:], 1<<64-1); p.sealed() },
		"a free page twice":                    func(p *paged) { copy(p.free[pageHead+8:pageHead+16], p.free[pageHead:pageHead+8]) },
		"a free page that is used":             func(p *paged) { copy(p.free[pageHead:], p.root[:8]) },
		"a free page less":                     func(p *paged) { p.free[10]-- },
		"more free pages than the list has":    func(p *paged) { order.PutUint16(p.free[10:], 0xfffe) },
		"a long list that is not":              func(p *paged) { order.PutUint16(p.free[10:], 0xffff); order.PutUint64(p.free[pageHead:], 1<<61) },
		"a list that is a leaf":                func(p *paged) { order.PutUint16(p.free[8:], kindLeaf) },
		"another page's number":                func(p *paged) { p.leaf[0]++ },
		"a page too long":                      func(p *paged) { order.PutUint32(p.leaf[12:], 1) },
		"a page longer than the file":          func(p *paged) { order.PutUint32(p.leaf[12:], 1<<31) },
		"a leaf of another kind":               func(p *paged) { order.PutUint16(p.leaf[8:], 4) },
		"a leaf that says that it is a branch": func(p *paged) { order.PutUint16(p.leaf[8:], kindBranch) },
		"an empty branch":                      func(p *paged) { order.PutUint16(p.branch[10:], 0) },
		"an empty leaf":                        func(p *paged) { order.PutUint16(p.leaf[10:], 0) },
		"a branch with one page less":          func(p *paged) { p.branch[10]-- },
		"a leaf with elements outside":         func(p *paged) { order.PutUint16(p.leaf[10:], 0x7fff) },
		"a circle":                             func(p *paged) { copy(p.branch[pageHead+8:pageHead+16], p.branch[:8]) },
		"a page in two places":                 func(p *paged) { copy(p.branch[pageHead+element+8:pageHead+element+16], p.branch[pageHead+8:]) },
		"another first key above":              func(p *paged) { p.branch[pageHead+int(order.Uint32(p.branch[pageHead:]))]++ },
		"another first key below":              func(p *paged) { p.leaf[pageHead+int(order.Uint32(p.leaf[pageHead+4:]))]-- },
		"keys in another order": func(p *paged) {
			second := pageHead + element
			p.leaf[second+int(order.Uint32(p.leaf[second+4:]))] = 'a'
		},
		"a key twice": func(p *paged) {
			copy(p.leaf[pageHead+element+12:pageHead+element+16], p.leaf[pageHead+12:pageHead+16])
			order.PutUint32(p.leaf[pageHead+element+4:], order.Uint32(p.leaf[pageHead+4:])-element)
			copy(p.leaf[pageHead+element+8:pageHead+element+12], p.leaf[pageHead+8:pageHead+12])
		},
		"a key without a byte":       func(p *paged) { order.PutUint32(p.leaf[pageHead+8:], 0) },
		"a key outside its page":     func(p *paged) { order.PutUint32(p.leaf[pageHead+4:], 1<<31) },
		"a key longer than its page": func(p *paged) { order.PutUint32(p.leaf[pageHead+8:], 1<<32-1) },
		"a value outside its page":   func(p *paged) { order.PutUint32(p.leaf[pageHead+12:], 1<<20) },
		"a record that is a bucket":  func(p *paged) { p.leaf[pageHead] = 1 },
		"a record of another kind":   func(p *paged) { p.leaf[pageHead] = 2 },
		"a bucket of another kind":   func(p *paged) { p.external[0] = 3 },
		"a bucket that is a record":  func(p *paged) { p.inline[0] = 0 },
		"a bucket without a head":    func(p *paged) { order.PutUint32(p.inline[12:], bucketHead-1) },
		"a bucket of a head alone":   func(p *paged) { order.PutUint32(p.inline[12:], bucketHead) },
		"the last key of all": func(p *paged) {
			e := p.lastElement()
			e[order.Uint32(e[4:])] = 0
		},
		"a bucket without a page":   func(p *paged) { order.PutUint32(p.inline[12:], bucketHead+pageHead-1) },
		"a bucket that is a branch": func(p *paged) { order.PutUint16(value(p.inline)[bucketHead+8:], kindBranch) },
		"a bucket elsewhere":        func(p *paged) { add(value(p.external), 1) },
		"a page's elements outside": func(p *paged) { order.PutUint16(value(p.inline)[bucketHead+10:], 1000) },
		"cut off in a page":         func(p *paged) { p.text = p.text[:int(order.Uint64(p.head[40:]))*p.size-1] },
		"cut off in the heads":      func(p *paged) { p.text = p.text[:2*p.size-1] },
		"cut off behind a page":     func(p *paged) { p.text = p.text[:int(order.Uint64(p.leaf))*p.size] },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPaged(t, good)
			change(p)
			if err := checkPages(bytes.NewReader(p.text), int64(len(p.text)), p.size); !errors.Is(err, checkFile) {
				t.Errorf("got %v, want checkFile", err)
			}
		})
	}
	p := newPaged(t, good)
	exact := p.text[:int(order.Uint64(p.head[40:]))*p.size]
	for name, text := range map[string][]byte{"good": good, "without the bytes after its pages": exact} {
		if err := checkPages(bytes.NewReader(text), int64(len(text)), p.size); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ids := make([]uint64, order.Uint16(p.free[10:]))
	for i := range ids {
		ids[i] = order.Uint64(p.free[pageHead+8*i:])
	}
	order.PutUint16(p.free[10:], 0xffff) // as bbolt writes a list of 65,535 pages or more
	for i, n := range slices.Insert(ids, 0, uint64(len(ids))) {
		order.PutUint64(p.free[pageHead+8*i:], n)
	}
	if err := checkPages(bytes.NewReader(p.text), int64(len(p.text)), p.size); err != nil {
		t.Errorf("a long list: %v", err)
	}
}
