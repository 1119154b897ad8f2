package awsid_test

import (
	"bytes"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/internal/testkit/costsearch"
)

// costly is a document that a search has made: its JSON, in chunks of so many bytes, and its signed
// attributes.
type costly struct {
	content, attributes *costsearch.Tree
	chunk               int
}

// Of the documents that a search tries, none takes much more memory than a good one of its size. Members
// that are many cost most: each has its name noted.
func TestCostliestDocuments(t *testing.T) {
	const maxSize = 8 << 10
	a := openAuthority()
	good := newShape(a, goodJSON)
	signature := newShape(a, goodJSON).marshal(a) // over something else
	lists := strings.Replace(goodJSON, "{", `{"billingProducts":["1","2"],"a":{"b":[0]},`, 1)
	attributes := func() *costsearch.Tree {
		list := slices.Concat(good.attributes...)
		return &costsearch.Tree{Tag: 0x31, Members: costsearch.Trees(list)}
	}
	s := &costsearch.Search[*costly]{Largest: maxSize,
		Start: []*costly{{costsearch.JSON([]byte(goodJSON)), attributes(), maxSize}, {costsearch.JSON([]byte(lists)), attributes(), 64}},
		Change: func(r *mathrand.Rand, from *costly) *costly {
			c := &costly{from.content.Clone(), from.attributes.Clone(), from.chunk}
			for range 1 + r.IntN(3) {
				switch r.IntN(4) {
				case 0:
					c.attributes.Mutate(r, maxSize-len(c.content.Marshal())-512)
				case 1:
					c.chunk = 1 << r.IntN(13)
				default:
					c.content.Mutate(r, maxSize-len(c.attributes.Marshal())-512)
				}
			}
			return c
		},
		Write: func(c *costly) []byte {
			content := string(c.content.Marshal())
			s := newShape(a, content)
			digest := s.attributes[2]
			s.attributes, s.chunks = nil, nil
			for _, e := range c.attributes.Members {
				if e := e.Marshal(); !bytes.Contains(e, digest[:10]) {
					s.attributes = append(s.attributes, e)
				}
			}
			s.attributes = append(s.attributes, digest)
			slices.SortFunc(s.attributes, bytes.Compare)
			for chunk := range slices.Chunk([]byte(content), c.chunk) {
				s.chunks = append(s.chunks, string(chunk))
			}
			s.signature = signature[len(signature)-256-len(nulls) : len(signature)-len(nulls)]
			return s.marshal(a)
		},
		Read: func(data []byte) (int, error) {
			_, err := awsid.Verify(data, table(), now)
			return len(data), err
		},
		Good: func(_, size int) []byte {
			more := max(0, size-len(goodJSON)-1024)
			fill := strings.Repeat("a", min(more, 3<<10))
			s := newShape(a, strings.Replace(goodJSON, "{", `{"fill":"`+fill+`",`, 1))
			if rest := more - len(fill); rest > 0 {
				s.attributes = append(s.attributes, attribute("\x60", octets(strings.Repeat("a", rest))))
			}
			return s.marshal(a)
		}}
	s.Run(t, 300, [...]float64{costsearch.Memory: 10, costsearch.Counted: 3})
}
