package boltregistry

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// bbolt's file, in the machine's byte order: pages with a head (number: 8 bytes, kind: 2, count
// of elements: 2, number of overflow pages: 4) and then elements. The first two pages have a head of the
// file in place of elements; the newer one is valid.
const (
	pageHead   = 16
	element    = 16 // of a branch: place and size of a key, page; of a leaf: flags, place, sizes of key and value
	bucketHead = 16 // first page, or zero and the page itself; a counter
	fileHead   = 64 // its last 8 bytes are a checksum

	kindBranch   = 0x01
	kindLeaf     = 0x02
	kindFreelist = 0x10
)

var order = binary.NativeEndian

func damaged(format string, values ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{checkFile}, values...)...)
}

// pages are a file's pages. Each must be used exactly once: bbolt has no checksums, follows every page
// number, and overwrites every page in its list of free pages, even a damaged one.
type pages struct {
	file io.ReaderAt
	size uint64
	used []bool
}

// checkPages checks page numbers, keys and the list of free pages of a database of this length.
func checkPages(file io.ReaderAt, length int64, pageSize int) error {
	heads := make([]byte, 2*pageSize)
	if _, err := file.ReadAt(heads, 0); err != nil {
		return damaged("its heads: %w", err)
	}
	head, other := heads[pageHead:pageHead+fileHead], heads[pageSize+pageHead:pageSize+pageHead+fileHead]
	if transaction(head) < transaction(other) {
		head, other = other, head
	}
	// A write is one sector of a disk. If it failed, both heads are as they were before.
	if sum(head) != order.Uint64(head[56:]) || sum(other) != order.Uint64(other[56:]) || transaction(head)-transaction(other) != 1 {
		return damaged("one of its two heads, and perhaps the last write with it")
	}
	count := order.Uint64(head[40:])
	if count > uint64(length)/uint64(pageSize) {
		return damaged("got %d bytes, want %d pages: it was cut off", length, count)
	}
	p := &pages{file: file, size: uint64(pageSize), used: make([]bool, count)}
	root := &tree{pages: p, root: true}
	if err := cmp.Or(p.use(0, 2), p.freelist(order.Uint64(head[32:])), root.page(order.Uint64(head[16:]), nil)); err != nil {
		return err
	}
	if lost := slices.Index(p.used, false); lost >= 0 {
		return damaged("page %d is neither in use nor free", lost)
	}
	return nil
}

// transaction returns the number of the write that made a head.
func transaction(head []byte) uint64 { return order.Uint64(head[48:]) }

func sum(head []byte) uint64 {
	h := fnv.New64a()
	h.Write(head[:56])
	return h.Sum64()
}

// use notes that pages are in use, or are free.
func (p *pages) use(first, count uint64) error {
	if all := uint64(len(p.used)); first >= all || count > all-first {
		return damaged("page %d does not exist", first)
	}
	for i := first; i < first+count; i++ {
		if p.used[i] {
			return damaged("page %d is used twice", i)
		}
		p.used[i] = true
	}
	return nil
}

// read reads a page with its overflow pages.
func (p *pages) read(id uint64) (kind, count uint16, text []byte, err error) {
	if err := p.use(id, 1); err != nil {
		return 0, 0, nil, err
	}
	text = make([]byte, p.size)
	_, err = p.file.ReadAt(text, int64(id*p.size))
	if err == nil && order.Uint64(text) != id {
		err = errors.New("it has another page number")
	}
	if more := uint64(order.Uint32(text[12:])); err == nil && more > 0 {
		if err := p.use(id+1, more); err != nil {
			return 0, 0, nil, err
		}
		text = append(text, make([]byte, more*p.size)...)
		_, err = p.file.ReadAt(text[p.size:], int64((id+1)*p.size))
	}
	if err != nil {
		return 0, 0, nil, damaged("page %d: %w", id, err)
	}
	return order.Uint16(text[8:]), order.Uint16(text[10:]), text, nil
}

// freelist reads the list of free pages.
func (p *pages) freelist(id uint64) error {
	kind, short, text, err := p.read(id)
	if err != nil {
		return err
	}
	count, ids := uint64(short), text[pageHead:]
	if short == 0xffff {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if kind != kindFreelist || count > uint64(len(ids)/8) {
		return damaged("its list of free pages")
	}
	for i := range count {
		if err := p.use(order.Uint64(ids[8*i:]), 1); err != nil {
			return err
		}
	}
	return nil
}

// tree is a bucket. The values of the root bucket are buckets without buckets.
type tree struct {
	*pages
	root bool
	last []byte // the greatest key so far
}

// page checks a page and the pages below it. known is its key in the page above.
func (t *tree) page(id uint64, known []byte) error {
	kind, count, text, err := t.read(id)
	if err != nil {
		return err
	}
	return t.elements(kind, count, text, known)
}

func (t *tree) elements(kind, count uint16, text, known []byte) error {
	if kind != kindLeaf && (kind != kindBranch || count == 0) || known != nil && count == 0 {
		return damaged("a page that is neither branch nor leaf, or empty")
	}
	for i := range int(count) {
		from := pageHead + i*element
		if from+element > len(text) {
			return damaged("a page with more elements than it has room for")
		}
		e, text := text[from:from+element], text[from:]
		place, size, value, flags := uint64(order.Uint32(e)), uint64(order.Uint32(e[4:])), uint64(0), uint32(0)
		if kind == kindLeaf {
			flags, place, size, value = order.Uint32(e), uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
		}
		if place+size+value > uint64(len(text)) {
			return damaged("an element outside its page")
		}
		key := text[place : place+size]
		if i == 0 && known != nil && !bytes.Equal(key, known) {
			return damaged("a page that is known by another key")
		}
		if kind == kindBranch {
			if err := t.page(order.Uint64(e[8:]), key); err != nil {
				return err
			}
			continue
		}
		if bytes.Compare(t.last, key) >= 0 || t.root != (flags == 1) || flags > 1 {
			return damaged("keys that are not in order, or values of another kind")
		}
		t.last = key
		if t.root {
			if err := t.bucket(text[place+size : place+size+value]); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket checks a bucket of the root.
func (t *tree) bucket(value []byte) error {
	below := &tree{pages: t.pages}
	if len(value) < bucketHead {
		return damaged("a bucket without a head")
	}
	if id := order.Uint64(value); id != 0 {
		return below.page(id, nil)
	}
	page := value[bucketHead:]
	if len(page) < pageHead || order.Uint16(page[8:]) != kindLeaf {
		return damaged("a bucket without a page")
	}
	return below.elements(kindLeaf, order.Uint16(page[10:]), page, nil)
}
