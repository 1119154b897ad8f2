package azure

import (
	"crypto/sha256"
	"crypto/x509"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/test/clouds/documents"
)

const (
	domain  = "metadata.azure.com"
	oidData = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"
)

// environment is what all vectors have in common.
type environment struct {
	Time                 time.Time
	Roots, Intermediates [][]byte

	roots, intermediates []*x509.Certificate
}

func load(t testing.TB) (*environment, map[string]*documents.Vector) {
	t.Helper()
	e := &environment{}
	list := documents.Load(t, "azure", e)
	e.roots, e.intermediates = parsed(t, e.Roots), parsed(t, e.Intermediates)
	return e, list
}

func parsed(t testing.TB, list [][]byte) (out []*x509.Certificate) {
	t.Helper()
	for _, der := range list {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func (e *environment) verifier(t testing.TB) *azure.Verifier {
	t.Helper()
	v, err := azure.NewVerifier(azure.VerifierConfig{Roots: e.roots, Intermediates: e.intermediates})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// attributesOver are the attributes contentType and messageDigest, as they are signed.
func attributesOver(content []byte) []byte {
	digest := sha256.Sum256(content)
	const before = "\x31\x4b\x30\x18\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x03\x31\x0b" + oidData +
		"\x30\x2f\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04\x31\x22\x04\x20"
	return append([]byte(before), digest[:]...)
}

// elsewhere are checks of the kind, which come after the document's.
var elsewhere = []string{"azure-document-nonce", "azure-subscription", "machine-identity"}

// weak are the checks that a verifier has to forget so that a vector gets in.
var weak = map[string][]string{
	"anchored-certificate-beside-signers":    {"one-certificate", "actual-signer"},
	"second-certificate":                     {"one-certificate"},
	"intermediate-along":                     {"one-certificate"},
	"second-signer":                          {"one-signer"},
	"second-signer-first":                    {"one-signer", "signature"},
	"signer-of-another-certificate":          {"actual-signer"},
	"signer-of-another-issuer":               {"actual-signer"},
	"second-digest-algorithm":                {"algorithm"},
	"signature-never-checked":                {"signature"},
	"signature-zero":                         {"signature"},
	"signature-empty":                        {"signature"},
	"signature-over-another-content":         {"signature"},
	"signed-attributes":                      {"attributes"},
	"signed-attributes-beside-content":       {"attributes", "signature"},
	"attributes-as-content":                  {"json"},
	"unsigned-attributes":                    {"attributes"},
	"digest-sha1":                            {"algorithm"},
	"digests-differ":                         {"algorithm"},
	"digest-without-null":                    {"algorithm"},
	"algorithm-pss":                          {"algorithm"},
	"another-root":                           {"chain"},
	"self-signed":                            {"chain"},
	"same-names-another-key":                 {"chain"},
	"issued-by-a-leaf":                       {"chain"},
	"name-of-another":                        {"name"},
	"common-name-alone":                      {"name"},
	"name-of-another-cloud":                  {"name"},
	"name-with-another-suffix":               {"name"},
	"name-with-another-prefix":               {"name"},
	"name-above":                             {"name"},
	"name-with-an-empty-label":               {"label"},
	"name-with-an-empty-first-label":         {"label"},
	"bytes-after-the-certificates-signature": {"elements"},
	"usage-clients":                          {"usage"},
	"usage-absent":                           {"usage"},
	"usage-no-signatures":                    {"usage"},
	"a-ca-signs":                             {"usage"},
	"key-of-1024-bits":                       {"key"},
	"key-ecdsa":                              {"key", "signature"},
	"certificate-expired":                    {"validity"},
	"certificate-of-tomorrow":                {"validity"},
	"machine-edited":                         {"signature"},
	"nonce-edited":                           {"signature"},
	"document-of-yesterday":                  {"time"},
	"document-of-the-next-minutes":           {"time"},
	"member-twice":                           {"json"},
	"member-in-other-letters":                {"json"},
	"time-twice":                             {"json"},
	"time-in-another-zone":                   {"json"},
	"time-of-another-form":                   {"json"},
	"content-with-more":                      {"json"},
	"trailing-bytes":                         {"der"},
	"indefinite-length":                      {"der"},
	"revocation-list-along":                  {"der"},
	"signer-version-3":                       {"der"},
	"more-in-the-signer":                     {"der"},
}

func TestWeakVersions(t *testing.T) {
	e, list := load(t)
	documents.CheckWeak(t, list, weak, elsewhere, func(document []byte, forget ...string) error { return newNaive(e, forget...).verify(document) })
}
