package nitro

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// addDocuments adds good, forged and recorded documents to a corpus.
func addDocuments(f *testing.F) *bench {
	b := newBench()
	for _, data := range goodForms(b) {
		f.Add(data)
	}
	for _, a := range attacks() {
		f.Add(a.forged(b))
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("NODEATTEST_CORPUS"), "cloud", "nitro", "*.cose"))
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data)
		}
	}
	return b
}

// FuzzParse: the result is a refusal or a document, whose parts are in the input. That other
// libraries read the same is shown in test/clouds.
func FuzzParse(f *testing.F) {
	addDocuments(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parse(data)
		if err != nil {
			if _, ok := errors.AsType[*refusal.Error](err); !ok || d != nil {
				t.Errorf("no refusal: %v", err)
			}
			return
		}
		inside(t, d, data)
	})
}

// inside checks that all parts of a document are in its bytes.
func inside(t *testing.T, d *Document, data []byte) {
	t.Helper()
	parts := append(slices.Collect(maps.Values(d.PCRs)), d.envelope.payload, d.envelope.signature, d.signer, d.Nonce, d.UserData, d.PublicKey)
	for _, part := range append(parts, d.cabundle...) {
		if !bytes.Contains(data, part) {
			t.Errorf("%x is not in the document", part)
		}
	}
}

// FuzzPayload reads the payload alone: no bytes make the reader panic, and an accepted payload is in
// them. That another library reads the same is shown in test/clouds.
func FuzzPayload(f *testing.F) {
	testkit.BeginFuzz(f)
	b := newBench()
	f.Add(b.good().payloadBytes())
	f.Add(b.enclave().payloadBytes())
	for _, a := range payloadAttacks() {
		p := b.good()
		a.make(b, p)
		f.Add(p.payloadBytes())
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := &Document{envelope: sign1{payload: payload}}
		if d.readPayload() == nil {
			inside(t, d, payload)
		}
	})
}

// FuzzVerify: an accepted document has the good document's contents.
func FuzzVerify(f *testing.F) {
	testkit.BeginFuzz(f)
	b := addDocuments(f)
	v, err := NewVerifier(VerifierConfig{Roots: b.roots()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := v.Verify(context.Background(), data, testTime)
		if err == nil && (d.ModuleID != testModule || !bytes.Equal(d.Nonce, testNonce) || !bytes.Equal(d.PCRs[4], pcr(4))) {
			t.Errorf("a forgery: %+v", d)
		}
	})
}

// Input of any size, depth and stated length costs little.
func TestHugeInput(t *testing.T) {
	b := newBench()
	good := b.good().marshal()
	withPayload := func(payload []byte) []byte {
		p := b.good()
		p.mapHead, p.members, p.mapEnd = payload, nil, nil
		return p.marshal()
	}
	kindtest.RefusesCheaply(t, 64<<10, map[string][]byte{
		"zeros":            make([]byte, 1<<20),
		"arrays":           bytes.Repeat([]byte{0x81}, 1<<20),
		"endless arrays":   bytes.Repeat([]byte{0x9f}, 1<<20),
		"a document, more": append(bytes.Clone(good), make([]byte, 1<<20)...),
		"a huge string":    {0x84, 0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"a huge map":       withPayload([]byte{0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"huge PCRs":        withPayload(append(append([]byte{0xbf}, tstr("nitrotpm_pcrs")...), 0xba, 0xff, 0xff, 0xff, 0xff)),
		"a huge cabundle":  withPayload(append(append([]byte{0xbf}, tstr("cabundle")...), 0x9a, 0xff, 0xff, 0xff, 0xff)),
		"nested maps":      withPayload(bytes.Repeat([]byte{0xbf}, 15<<10)),
	}, func(data []byte) error { _, err := parseInsecure(data); return err })
}
