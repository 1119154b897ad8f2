package der

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// Elements are counted at every level that a parser goes to, as far as there are so many.
func TestCountElements(t *testing.T) {
	deep := []byte{5, 0}
	for range maxDepth + 3 {
		deep = append([]byte{0x30, byte(len(deep))}, deep...)
	}
	identifier := func(size int) []byte {
		return append([]byte{6, 0x81, byte(size)}, bytes.Repeat([]byte{1}, size)...)
	}
	for _, c := range []struct {
		name string
		data []byte
		want int // -1: too much
	}{
		{"nothing", nil, 0},
		{"one", []byte{5, 0}, 1},
		{"two", []byte{5, 0, 5, 0}, 2},
		{"in a SEQUENCE", []byte{0x30, 4, 5, 0, 5, 0}, 3},
		{"in a SET", []byte{0x31, 2, 5, 0}, 2},
		{"in a tag of the context", []byte{0xa3, 2, 5, 0}, 2},
		{"in a primitive tag of the context", []byte{0x83, 2, 5, 0}, 1},
		{"a SEQUENCE in an OCTET STRING", []byte{4, 4, 0x30, 2, 5, 0}, 3},
		{"something else in an OCTET STRING", []byte{4, 2, 5, 0}, 1},
		{"behind a list", []byte{0x30, 2, 5, 0, 5, 0}, 3},
		{"no DER", []byte{5, 9}, 1},
		{"no DER in a list, and something behind it", []byte{0x30, 2, 5, 9, 5, 0}, 3},
		{"as many as may be", bytes.Repeat([]byte{5, 0}, 40), 40},
		{"one more", bytes.Repeat([]byte{5, 0}, 41), -1},
		{"one more, in a list", append([]byte{0x30, 80}, bytes.Repeat([]byte{5, 0}, 40)...), -1},
		{"deeper than anyone looks", deep, maxDepth + 1},
		{"as long an identifier as may be", identifier(128), 1},
		{"a longer one", identifier(129), -1},
		{"a longer one, in a list", append([]byte{0x30, 0x81, 132}, identifier(129)...), -1},
		{"another string as long", append([]byte{12, 0x81, 129}, make([]byte, 129)...), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := CountElements("a thing", c.data, 40)
			if c.want < 0 && (!errors.Is(err, CheckSize) || errors.Is(err, refusal.ErrRetry)) || c.want >= 0 && (err != nil || got != c.want) {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}
