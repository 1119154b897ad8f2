package costsearch

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
)

// A search over JSON finds each of three faults of a reader: members that are compared with all
// before them, levels that are walked once a level, and long texts that are copied.
func TestSearchFinds(t *testing.T) {
	const good = `{"a":{"b":"text"},"list":[1,2]}`
	for name, fault := range map[string]struct {
		turns int
		work  func(object *Tree) int
	}{
		"members": {1000, func(e *Tree) int { return len(e.Members) * len(e.Members) }},
		"levels": {400, func(e *Tree) (levels int) {
			for ; len(e.Members) > 0; e = e.Members[len(e.Members)-1] {
				levels++
			}
			return levels * levels
		}},
		"text": {400, func(e *Tree) int { return len(e.Last().Content) * len(e.Last().Content) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Search[*Tree]{Start: []*Tree{JSON([]byte(good))}, Write: (*Tree).Marshal,
				Change: func(r *rand.Rand, from *Tree) *Tree {
					changed := from.Clone()
					changed.Mutate(r, 4<<10)
					return changed
				},
				Read: func(data []byte) (int, error) {
					if !json.Valid(data) {
						return len(data), errors.New("got no JSON")
					}
					return len(data) + fault.work(JSON(data)), nil
				},
				Good:    func(_, size int) []byte { return append([]byte(good), bytes.Repeat([]byte(" "), size)...) },
				Largest: 4 << 10}
			if found := s.best(t, 1, fault.turns)[Counted][0]; s.excess(found, Counted) < 5 {
				t.Errorf("%.1f times a good one: %.100s", s.excess(found, Counted), found.data)
			}
		})
	}
}
