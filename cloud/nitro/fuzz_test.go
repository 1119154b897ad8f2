package nitro

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/veraison/go-cose"

	"github.com/nodeattest/nodeattest/internal/fuzzing"
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

// FuzzParse: what is read is a refusal or a document, and then two other libraries read the
// same from it.
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
		m := &cose.UntaggedSign1Message{}
		if err := m.UnmarshalCBOR(data); err != nil {
			t.Fatalf("the other library refuses it: %v", err)
		}
		if algorithm, err := m.Headers.Protected.Algorithm(); err != nil || algorithm != cose.AlgorithmES384 || len(m.Headers.Unprotected) > 0 ||
			!bytes.Equal(m.Payload, d.envelope.payload) || !bytes.Equal(m.Signature, d.envelope.signature) {
			t.Errorf("another envelope: %v, %v", m.Headers, err)
		}
		checkPayload(t, d)
	})
}

// checkPayload holds a payload against what another library reads, with its strictest
// options and with none.
func checkPayload(t *testing.T, d *Document) {
	t.Helper()
	for _, strict := range []bool{true, false} {
		p := &naivePayload{}
		if err := p.decode(d.envelope.payload, strict); err != nil {
			t.Fatalf("the other library refuses it (strict %v): %v", strict, err)
		}
		values := p.NitroPCRs
		if d.enclave {
			values = p.EnclavePCRs
		}
		same := p.ModuleID == d.ModuleID && p.Digest == "SHA384" && int64(p.Timestamp) == d.Timestamp.UnixMilli() && bytes.Equal(p.Certificate, d.signer) &&
			slices.EqualFunc(p.CABundle, d.cabundle, bytes.Equal) && bytes.Equal(p.PublicKey, d.PublicKey) && bytes.Equal(p.UserData, d.UserData) &&
			bytes.Equal(p.Nonce, d.Nonce) && len(values) == len(d.PCRs)
		for i, value := range values {
			same = same && bytes.Equal(value, d.PCRs[int(i)])
		}
		if !same {
			t.Errorf("strict %v: read as %+v and %+v", strict, d, p)
		}
	}
}

// FuzzPayload reads the payload alone: whatever this reader takes, the other one takes with
// its strictest options, and reads the same.
func FuzzPayload(f *testing.F) {
	fuzzing.Begin(f)
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
			checkPayload(t, d)
		}
	})
}

// FuzzVerify: what is taken says what the good document says.
func FuzzVerify(f *testing.F) {
	fuzzing.Begin(f)
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
	for name, data := range map[string][]byte{
		"zeros":            make([]byte, 1<<20),
		"arrays":           bytes.Repeat([]byte{0x81}, 1<<20),
		"endless arrays":   bytes.Repeat([]byte{0x9f}, 1<<20),
		"a document, more": append(bytes.Clone(good), make([]byte, 1<<20)...),
		"a huge string":    {0x84, 0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"a huge map":       withPayload([]byte{0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"huge PCRs":        withPayload(append(append([]byte{0xbf}, tstr("nitrotpm_pcrs")...), 0xba, 0xff, 0xff, 0xff, 0xff)),
		"a huge cabundle":  withPayload(append(append([]byte{0xbf}, tstr("cabundle")...), 0x9a, 0xff, 0xff, 0xff, 0xff)),
		"nested maps":      withPayload(bytes.Repeat([]byte{0xbf}, 15<<10)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := parseInsecure(data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("taken")
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
				t.Errorf("%d bytes allocated", got)
			}
		})
	}
}
