package tpm

import (
	"crypto/sha256"
	"testing"
)

func BenchmarkQuote(b *testing.B) {
	tpm := newTPM(b)
	qd := sha256.Sum256([]byte("qualifying data"))
	for b.Loop() {
		if _, err := quoteWith(b, tpm, AKSource{Template: AKTemplateECDSAP256()}, DefaultPCRs(), qd[:]); err != nil {
			b.Fatal(err)
		}
	}
}
