package tpm

import (
	"crypto/sha256"
	"testing"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

func BenchmarkQuote(b *testing.B) {
	tpm := tpmlab.NewTPM(b)
	qd := sha256.Sum256([]byte("qualifying data"))
	for b.Loop() {
		if _, err := quoteWith(b, tpm, AKSource{Template: AKTemplateECDSAP256()}, DefaultPCRs(), qd[:]); err != nil {
			b.Fatal(err)
		}
	}
}
