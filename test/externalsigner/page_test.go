package externalsigner

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A page is one of docs, whose blocks of sh and yaml a test runs or loads: each of them.
type page struct {
	name   string
	blocks map[string][]string // by language and heading in order, without the taken ones
}

func readPage(t *testing.T, name string) *page {
	t.Helper()
	p, heading := &page{name: name, blocks: map[string][]string{}}, ""
	text := controlplane.Read(t, filepath.Join("..", "..", "docs", name))
	for _, found := range regexp.MustCompile("(?ms)^#+ ([^\n]*)$|^```(sh|yaml)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if found[1] != "" {
			heading = found[1]
			continue
		}
		key := found[2] + ": " + heading
		p.blocks[key] = append(p.blocks[key], found[3])
	}
	return p
}

// take returns the next block of a language under a heading.
func (p *page) take(t *testing.T, language, heading string) string {
	t.Helper()
	key := language + ": " + heading
	if len(p.blocks[key]) == 0 {
		t.Fatalf("docs/%s: no block of %s under %q", p.name, language, heading)
	}
	text := p.blocks[key][0]
	p.blocks[key] = p.blocks[key][1:]
	return text
}

// taken says that each block has been taken.
func (p *page) taken(t *testing.T) {
	t.Helper()
	for key, left := range p.blocks {
		if len(left) != 0 {
			t.Errorf("docs/%s: no step takes %d of the blocks of %s", p.name, len(left), key)
		}
	}
}

// keyInTPM is the heading of a block of docs/external-signer.md that two tests take.
const keyInTPM = "A key in a TPM"
