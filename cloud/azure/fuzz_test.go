package azure

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/smallstep/pkcs7"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/fuzzing"
	"github.com/nodeattest/nodeattest/refusal"
)

// addDocuments adds good, forged and recorded documents to a corpus.
func addDocuments(f *testing.F) *bench {
	b := testBench(f)
	f.Add(must(b.good().marshal()))
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

// FuzzParse: what is read is a refusal or a document, and then another library reads the
// same certificate, signer, signature and content from it.
func FuzzParse(f *testing.F) {
	fuzzing.Begin(f)
	if good := must(addDocuments(f).good().marshal()); !derThroughout(good) {
		f.Fatal("the good document is no DER")
	}
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
		leaf, err := s.signer()
		if err != nil {
			return // the other library takes no other certificates either, or looks for another
		}
		p, err := pkcs7.Parse(data)
		if !derThroughout(data) {
			return // inside a certificate, where crypto/x509 overlooks it and the other library refuses it or writes it anew
		}
		if err != nil {
			t.Fatalf("the other library refuses it: %v", err)
		}
		signer := p.GetOnlySigner()
		if len(p.Certificates) != 1 || len(p.Signers) != 1 || signer == nil || !signer.Equal(leaf) {
			t.Fatalf("another signer: %v", signer)
		}
		if !bytes.Equal(p.Content, s.content) || !bytes.Equal(p.Signers[0].EncryptedDigest, s.signature) || len(p.Signers[0].AuthenticatedAttributes) > 0 {
			t.Error("another content or signature")
		}
	})
}

// derThroughout reports whether the elements in all constructed elements are DER.
func derThroughout(data cryptobyte.String) bool {
	for !data.Empty() {
		var element cryptobyte.String
		var tag asn1.Tag
		if !data.ReadAnyASN1(&element, &tag) || tag&0x20 != 0 && !derThroughout(element) {
			return false
		}
	}
	return true
}

// FuzzVerify: what is taken says what the good document says.
func FuzzVerify(f *testing.F) {
	fuzzing.Begin(f)
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
	good := must(testBench(t).good().marshal())
	for name, data := range map[string][]byte{
		"zeros":               make([]byte, 1<<20),
		"nested":              bytes.Repeat([]byte{0x30, 0x80}, 1<<19),
		"a document, more":    append(bytes.Clone(good), make([]byte, 1<<20)...),
		"nested at the limit": bytes.Repeat([]byte{0x30, 0x80}, maxDocumentSize/2),
		"a huge length":       {0x30, 0x84, 0xff, 0xff, 0xff, 0xff},
		"nested JSON":         must(newParts([]byte(strings.Repeat("[", 12<<10)), testBench(t).leaf).marshal()),
		"names":               must(newParts([]byte("{"+strings.Repeat(`"a":1,`, 2<<10)+`"b":1}`), testBench(t).leaf).marshal()),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := parseInsecure(data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("taken")
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 256<<10 {
				t.Errorf("%d bytes allocated", got)
			}
		})
	}
}
