package nitro

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/test/clouds/documents"
)

// environment is what all vectors have in common.
type environment struct {
	Time  time.Time
	Roots [][]byte

	root *x509.Certificate
}

func load(t testing.TB) (*environment, map[string]*documents.Vector) {
	t.Helper()
	e := &environment{}
	list := documents.Load(t, "nitro", e)
	var err error
	if e.root, err = x509.ParseCertificate(e.Roots[0]); err != nil {
		t.Fatal(err)
	}
	return e, list
}

func verifier(t testing.TB, roots ...*x509.Certificate) *nitro.Verifier {
	t.Helper()
	v, err := nitro.NewVerifier(nitro.VerifierConfig{Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// elsewhere are checks of the kind, which come after the document's.
var elsewhere = []string{"nitro-document-nonce", "nitro-document-user-data", "nitro-pcrs"}

// weak are the checks that a verifier has to forget so that a vector gets in.
var weak = map[string][]string{
	"algorithm-es256":                {"algorithm"},
	"algorithm-hmac":                 {"algorithm"},
	"algorithm-absent":               {"algorithm"},
	"algorithm-and-more":             {"algorithm"},
	"algorithm-with-a-long-head":     {"algorithm"},
	"algorithm-unprotected":          {"algorithm", "envelope"},
	"unprotected-header":             {"algorithm"},
	"tagged":                         {"tag"},
	"payload-with-a-long-head":       {"envelope"},
	"signature-never-checked":        {"signature"},
	"signature-zero":                 {"signature"},
	"signature-over-the-order":       {"signature"},
	"signature-of-95-bytes":          {"signature"},
	"signature-in-der":               {"signature"},
	"machine-edited":                 {"signature", "leaf-name", "issuer-name"},
	"nonce-edited":                   {"signature"},
	"pcr-edited":                     {"signature"},
	"nonce-twice":                    {"strict"},
	"machine-twice":                  {"strict"},
	"nonce-in-other-letters":         {"strict"},
	"unknown-key":                    {"strict"},
	"key-in-chunks":                  {"strict"},
	"map-with-a-long-head":           {"strict"},
	"tagged-payload":                 {"strict"},
	"nonce-in-chunks":                {"strict"},
	"nonce-in-an-array":              {"strict"},
	"nonce-with-a-long-head":         {"strict"},
	"nonce-tagged":                   {"strict"},
	"nonce-undefined":                {"strict"},
	"nonce-of-1025-bytes":            {"limits"},
	"machine-null":                   {"module", "leaf-name", "issuer-name"},
	"machine-in-chunks":              {"strict"},
	"time-with-a-long-head":          {"strict", "time"},
	"time-too-large":                 {"time"},
	"digest-sha256":                  {"algorithm"},
	"no-machine":                     {"module", "leaf-name", "issuer-name"},
	"no-time":                        {"time"},
	"no-cabundle":                    {"chain"},
	"no-pcrs":                        {"kind", "pcrs"},
	"cabundle-empty":                 {"chain"},
	"cabundle-without-a-length":      {"strict"},
	"pcrs-empty":                     {"pcrs"},
	"pcrs-null":                      {"pcrs", "kind"},
	"pcrs-without-a-length":          {"strict"},
	"pcr-twice":                      {"strict"},
	"pcr-32":                         {"pcrs"},
	"pcr-with-a-long-head":           {"strict"},
	"pcr-of-32-bytes":                {"pcrs"},
	"pcr-null":                       {"pcrs"},
	"pcr-empty":                      {"pcrs"},
	"enclave":                        {"kind", "module"},
	"enclave-called-tpm":             {"kind"},
	"enclave-with-both":              {"kind"},
	"enclave-with-pcrs-of-a-tpm":     {"module"},
	"machine-of-another-certificate": {"leaf-name", "issuer-name"},
	"certificate-of-another-module":  {"leaf-name", "issuer-name"},
	"certificate-of-another-cloud":   {"leaf-name", "issuer-name"},
	"certificate-without-a-region":   {"leaf-name", "issuer-name"},
	"certificate-of-another-region":  {"issuer-name"},
	"issued-by-another-instance":     {"issuer-name"},
	"another-root":                   {"root", "bundle-order"},
	"another-root-first":             {"chain"},
	"last-of-cabundle-for-the-root":  {"root", "bundle-order"},
	"our-root-before-anothers":       {"chain"},
	"cabundle-backwards":             {"bundle-order"},
	"cabundle-without-the-root":      {"bundle-order"},
	"cabundle-lacks-one":             {"chain"},
	"root-alone":                     {"chain"},
	"issued-by-a-leaf":               {"ca-constraints"},
	"path-too-long":                  {"ca-constraints"},
	"a-ca-signs":                     {"usage", "ca-constraints"},
	"usage-no-signatures":            {"usage"},
	"usage-absent":                   {"usage"},
	"key-on-p256":                    {"curve"},
	"ca-on-p521":                     {"curve"},
	"document-of-yesterday":          {"validity", "time"},
	"certificate-of-tomorrow":        {"validity", "time"},
	"instance-certificate-expired":   {"chain"},
	"time-in-the-future":             {"time"},
	"time-before-the-certificate":    {"time"},
}

func TestWeakVersions(t *testing.T) {
	e, list := load(t)
	documents.CheckWeak(t, list, weak, elsewhere, func(document []byte, forget ...string) error { return newNaive(e, forget...).verify(document) })
}
