package azure

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// addDocuments adds good, forged and recorded documents to a corpus.
func addDocuments(f *testing.F) *bench {
	b := testBench(f)
	f.Add(testkit.Must(b.good().marshal()))
	for _, a := range attacks() {
		if der := a.forged(b); len(der) < 2*maxDocumentSize {
			f.Add(der)
		}
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("NODEATTEST_CORPUS"), "cloud", "azure", "*.p7"))
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data)
		}
	}
	return b
}

// FuzzParse: the result is a refusal or a document, whose parts are in the input. That another
// library reads the same is shown in test/clouds.
func FuzzParse(f *testing.F) {
	testkit.BeginFuzz(f)
	addDocuments(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := parseInsecure(data); err != nil {
			if _, ok := errors.AsType[*refusal.Error](err); !ok || d != nil {
				t.Errorf("no refusal: %v", err)
			}
		}
		s, err := readSignedData(data)
		if err != nil {
			return
		}
		for _, part := range [][]byte{s.certificate, s.content, s.signature} {
			if !bytes.Contains(data, part) {
				t.Errorf("%x is not in the document", part)
			}
		}
	})
}

// FuzzVerify: an accepted document has the good document's contents.
func FuzzVerify(f *testing.F) {
	testkit.BeginFuzz(f)
	b := addDocuments(f)
	v, err := NewVerifier(b.config())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := v.Verify(context.Background(), data, testTime)
		if err == nil && (d.VMID != testVM || d.Nonce != testNonce) {
			t.Errorf("a forgery: %+v", d)
		}
	})
}

// Input of any size and depth costs little.
func TestHugeInput(t *testing.T) {
	good := testkit.Must(testBench(t).good().marshal())
	kindtest.RefusesCheaply(t, 256<<10, map[string][]byte{
		"zeros":               make([]byte, 1<<20),
		"nested":              bytes.Repeat([]byte{0x30, 0x80}, 1<<19),
		"a document, more":    append(bytes.Clone(good), make([]byte, 1<<20)...),
		"nested at the limit": bytes.Repeat([]byte{0x30, 0x80}, maxDocumentSize/2),
		"a huge length":       {0x30, 0x84, 0xff, 0xff, 0xff, 0xff},
		"nested JSON":         testkit.Must(newParts([]byte(strings.Repeat("[", 12<<10)), testBench(t).leaf).marshal()),
		"names":               testkit.Must(newParts([]byte("{"+strings.Repeat(`"a":1,`, 2<<10)+`"b":1}`), testBench(t).leaf).marshal()),
	}, func(data []byte) error { _, err := parseInsecure(data); return err })
}
