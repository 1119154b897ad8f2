package csr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// sameReading fails the test unless both readers accept text and read the same, or both
// refuse it. It reports whether they accept.
func sameReading(t testing.TB, text []byte) (bundle, proposal bool) {
	t.Helper()
	compare := func(name string, read, old func([]byte) (*Bundle, error)) bool {
		got, err := read(text)
		want, oldErr := old(text)
		if (err == nil) != (oldErr == nil) || !cmp.Equal(got, want) {
			t.Fatalf("%s of %q\nreads %+v, %v\nand by the old reader %+v, %v", name, text, got, err, want, oldErr)
		}
		return err == nil
	}
	return compare("Parse", Parse, oldParse), compare("ParseProposal", ParseProposal, oldParseProposal)
}

// readerSeeds are the bundles of the test vectors, good and bad, what Marshal writes, and
// the proposal's form in one line and in many.
func readerSeeds(t testing.TB) (seeds [][]byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(testkit.VectorFolder(t, "data"), "*", "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%d vectors, %v", len(names), err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var v struct{ Bundle struct{ PEM []byte } }
		if err := json.Unmarshal(data, &v); err == nil && len(v.Bundle.PEM) > 0 && len(v.Bundle.PEM) < 20_000 {
			seeds = append(seeds, v.Bundle.PEM)
		}
	}
	if len(seeds) < 30 {
		t.Fatalf("%d vectors have a bundle", len(seeds))
	}
	request := block(BlockRequest, clientRequest(t, keyP256()))
	seeds = append(seeds, request, join(request, []byte(proposalExample)))
	for n := 1; n < 150; n++ {
		b := attestedBundle(t, n)
		seeds = append(seeds, encodeBundle(t, b), join(request, block(BlockProposalData, b.Data)),
			join(request, []byte("-----BEGIN ATTESTATION DATA-----\n"+base64.StdEncoding.EncodeToString(b.Data)+"\n-----END ATTESTATION DATA-----\n")))
	}
	return append(seeds, encodeBundle(t, attestedBundle(t, 3000)))
}

// fragments are texts that a mutation inserts.
var fragments = []string{
	"\n", "\r", "\r\n", " ", "\t", "\x00", "=", "==", "===", "====", "-", "--", "-----", "A", "AA==", "AAA=", "AAAA", "AB==",
	"AAAA\n", "a: b\n", "a: b\n\n", ":", "_", "+", "/", strings.Repeat("A", 64) + "\n", strings.Repeat("A", 68) + "\n",
	"-----BEGIN CERTIFICATE REQUEST-----\n", "-----END CERTIFICATE REQUEST-----\n", "-----BEGIN ATTESTATION DATA-----\n",
	"-----BEGIN KUBELET AUTHENTICATOR ATTESTATION DATA-----\n", "-----END KUBELET AUTHENTICATOR ATTESTATION DATA-----\n",
}

// mutate changes a bit, a byte, a line or a block of text.
func mutate(r *rand.Rand, text []byte) []byte {
	if len(text) == 0 {
		return []byte(fragments[r.IntN(len(fragments))])
	}
	i, j := r.IntN(len(text)), r.IntN(len(text))
	// unit has the text in lines or blocks, and n and m are two of them.
	separator := []string{"\n", "-----BEGIN "}[r.IntN(2)]
	unit := strings.SplitAfter(string(text), separator)
	n, m := r.IntN(len(unit)), r.IntN(len(unit))
	switch r.IntN(10) {
	case 0:
		text[i] ^= 1 << r.IntN(8)
	case 1:
		text[i] = "AQw+/=\n\r -:_"[r.IntN(12)]
	case 2:
		return append(text[:i], text[i+1:]...)
	case 3:
		text[i], text[j] = text[j], text[i]
	case 4:
		return text[:i]
	case 5:
		return append(text[:i:i], append([]byte(fragments[r.IntN(len(fragments))]), text[i:]...)...)
	case 6:
		unit[n], unit[m] = unit[m], unit[n]
		return []byte(strings.Join(unit, ""))
	case 7:
		return []byte(strings.Join(append(unit[:n:n], unit[n+1:]...), ""))
	case 8:
		return []byte(strings.Join(append(unit[:n:n], unit[m:]...), ""))
	case 9:
		unit[n] = []string{strings.TrimSuffix(unit[n], separator), unit[n] + separator, fragments[r.IntN(len(fragments))] + unit[n]}[r.IntN(3)]
		return []byte(strings.Join(unit, ""))
	}
	return text
}

// TestReadersAgree reads 12,000 changed texts by this reader and by the one before, and
// 120,000 with NODEATTEST_LONG=1.
func TestReadersAgree(t *testing.T) {
	texts := 1000
	if os.Getenv("NODEATTEST_LONG") == "1" {
		texts *= 10
	}
	seeds := readerSeeds(t)
	var bundles, proposals, refused int
	read := func(text []byte) {
		b, p := sameReading(t, text)
		switch {
		case b:
			bundles++
		case p:
			proposals++
		default:
			refused++
		}
	}
	for _, text := range seeds {
		read(text)
	}
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range texts {
			text := bytes.Clone(seeds[r.IntN(len(seeds))])
			for range 1 + r.IntN(3) {
				text = mutate(r, text)
			}
			read(text)
		}
	}
	t.Logf("%d seeds: %d bundles, %d in the proposal's form, %d refused", len(seeds), bundles, proposals, refused)
	if bundles < texts/10 || proposals < texts/10 || refused < 10*texts {
		t.Error("too few of a kind")
	}
}

// TestReadersAgreeOnLines reads bodies of one and two lines of many widths.
func TestReadersAgreeOnLines(t *testing.T) {
	head := string(block(BlockRequest, clientRequest(t, keyP256()))) + string(block(BlockProvider, []byte("tpm/v1")))
	line := strings.Repeat("QUJD", 34)
	for first := range 131 {
		for _, second := range []int{-1, 0, 1, 4, 60, 63, 64, 65, 68, 128} {
			for _, pad := range []string{"", "=", "==", "A=", "g==", "h==", "\r", "\r\r\r\r"} {
				lines := line[:first] + pad + "\n"
				if second >= 0 {
					lines += line[:second] + "\n"
				}
				sameReading(t, []byte(head+"-----BEGIN "+BlockData+"-----\n"+lines+"-----END "+BlockData+"-----\n"))
				sameReading(t, []byte(head[:strings.Index(head, "-----BEGIN "+BlockProvider)]+"-----BEGIN "+BlockProposalData+"-----\n"+lines+"-----END "+BlockProposalData+"-----\n"))
			}
		}
	}
}

// FuzzReadersAgree compares the readers.
func FuzzReadersAgree(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, text := range readerSeeds(f) {
		if len(text) < 2000 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) { sameReading(t, text) })
}
