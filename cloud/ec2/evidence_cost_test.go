package ec2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
)

// TestCostliestAnswers: 64 KiB in any shape are refused for little.
func TestCostliestAnswers(t *testing.T) {
	// filled has a part as often as it fits.
	filled := func(before, part, behind string) []byte {
		return []byte(before + strings.Repeat(part, (maxAnswer-len(before)-len(behind))/len(part)) + behind)
	}
	var attributes strings.Builder
	for n := 0; attributes.Len() < maxAnswer-200; n++ {
		fmt.Fprintf(&attributes, ` xmlns:a%d="b"`, n)
	}
	open := `<GetCallerIdentityResponse xmlns="` + namespace + `">`
	kindtest.RefusesCheaply(t, 4<<20, map[string][]byte{
		"deep":        filled("", "<a>", ""),
		"wide":        filled(open, "<a/>", ""),
		"attributes":  []byte("<a" + attributes.String() + "/>"),
		"text":        filled(open, "x", ""),
		"CDATA":       filled(open+"<a>", "<![CDATA[]]>", ""),
		"entities":    filled(open+"<a>", "&lt;", "</a>"),
		"comments":    filled(open, "<!---->", ""),
		"white space": filled(open, " ", ""),
		"a long name": filled("<", "a", ">"),
		"declaration": filled("<?xml ", "a", "?>"),
		"doctype":     filled("<!DOCTYPE ", "<!A>", ">"),
	}, func(data []byte) error {
		_, err := parseAnswer(data)
		return err
	})
}

// TestCostliestEvidence: so is evidence that is as long as can be.
func TestCostliestEvidence(t *testing.T) {
	l := newLab(t)
	p := l.platform(t, imitation(sessions()))
	long := l.good()
	long.document = bytes.Repeat([]byte{0x30, 0x80}, maxDocument/2)
	parameters := l.good()
	parameters.sent = func(s *sentRequest) { s.url += strings.Repeat("&", maxURL-len(s.url)) }
	encoded := l.good()
	encoded.sent = func(s *sentRequest) { s.url += strings.Repeat("%41", (maxURL-len(s.url))/3) }
	kindtest.RefusesCheaply(t, 256<<10, map[string][]byte{
		"zeros":      make([]byte, document.MaxDocumentSize),
		"nested":     bytes.Repeat([]byte{0x30, 0x80}, document.MaxDocumentSize/2),
		"documents":  long.marshal(),
		"parameters": parameters.marshal(),
		"encoded":    encoded.marshal(),
	}, func(data []byte) error {
		_, err := p.Read(data)
		return err
	})
}
