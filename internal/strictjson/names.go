package strictjson

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// few is the number of names up to which comparing with each is cheaper than a map.
const few = 16

// names are the member names of one object that were seen so far: the first few as they
// are, all by their folded form once they are more.
type names struct {
	first  [few][]byte
	count  int
	folded map[string]string // folded to as it was
}

// add takes one more name, or returns why it may not stand beside those before it.
func (n *names) add(name []byte) Reason {
	if n.count == MaxMembers {
		return ErrMembers
	}
	if n.count < few {
		for _, other := range n.first[:n.count] {
			if bytes.EqualFold(other, name) {
				return collision(string(other), name)
			}
		}
		n.first[n.count] = name
		n.count++
		return ""
	}
	if n.folded == nil {
		n.folded = make(map[string]string, 2*few)
		for _, other := range n.first {
			n.folded[fold(other)] = string(other)
		}
	}
	key := fold(name)
	if other, ok := n.folded[key]; ok {
		return collision(other, name)
	}
	n.folded[key] = string(name)
	n.count++
	return ""
}

func collision(other string, name []byte) Reason {
	if other == string(name) {
		return ErrDuplicate
	}
	return ErrCase
}

// fold returns a text that is the same for names that bytes.EqualFold holds equal: each
// letter becomes the smallest of those that differ from it only in case.
func fold(name []byte) string {
	folded := make([]byte, 0, len(name))
	for _, c := range string(name) {
		smallest := c
		for other := unicode.SimpleFold(c); other != c; other = unicode.SimpleFold(other) {
			smallest = min(smallest, other)
		}
		folded = utf8.AppendRune(folded, smallest)
	}
	return string(folded)
}
