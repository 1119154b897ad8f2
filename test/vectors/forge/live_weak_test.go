package forge

import (
	"testing"

	"github.com/nodeattest/nodeattest/attest"
)

// TestNaiveIsStrict: a provider that forgets nothing admits honest machines, and no attack.
func TestNaiveIsStrict(t *testing.T) {
	for _, o := range everyWorld {
		w := newWorld(t, o)
		expectGotIn(t, newNaive(w), w, nil)
	}
}

// TestWeakProviders has a provider forget one check, and counts on the runner to name
// the attacks that this lets in: these and no others.
func TestWeakProviders(t *testing.T) {
	for check, want := range map[string][]string{
		"qualified-name":           {"qualified-name-absent", "qualified-name-of-another-algorithm"},
		"key-x509sign":             {"key-x509sign"},
		"ak-sign":                  {"ak-cannot-sign"},
		"ak-encrypted-duplication": {"ak-encrypted-duplication"},
		"ak-symmetric":             {"ak-symmetric-scheme"},
		"qualified-signer":         {"ak-loaded-from-outside", "qualified-signer-absent", "qualified-signer-of-another-algorithm"},
		"version":                  {"provider-version-unknown", "provider-version-annotated", "evidence-of-another-version"},
		"statements":               {"statements-reversed", "statement-unknown", "two-certify-statements", "proof-twice"},
		"magic":                    {"forged-magic"},
		"type":                     {"forged-quote", "command-audit"},
		"trailing-bytes":           {"statement-trailing-bytes", "public-area-trailing-bytes", "signature-trailing-bytes", "public-area-absent"},
		"road":                     {"answer-on-another-road"},
		"cluster":                  {"answer-for-another-cluster"},
		"signer":                   {"answer-for-another-signer"},
		"requester":                {"answer-of-another-requester"},
		"lifetime":                 {"answer-for-another-lifetime"},
		"machine-key":              {"answer-of-another-machine-key"},
		"request":                  {"answer-for-another-request"},
		"window":                   {"challenge-window-stretched", "challenge-window-reversed"},
		"late":                     {"answer-late", "evidence-of-yesterday"},
		"early":                    {"answer-early"},
		"old":                      {"answer-old"},
		"retired-key":              {"challenge-key-retired"},
		"unknown-key":              {"challenge-key-unknown", "echo-key-id-unknown"},
		"qualifying-data":          {"challenge-secret-made-up", "challenge-nonce-changed", "challenge-window-moved", "qualifying-data-absent", "qualifying-data-prefix", "qualifying-data-other", "qualifying-data-is-the-secret", "echo-issued-at", "echo-not-after", "echo-not-after-stretched-within-an-hour", "qualifying-data-extended"},
		"qualifying-data-length":   {"qualifying-data-absent", "qualifying-data-prefix"},
		"name":                     {"name-of-another-key", "public-area-attributes-changed"},
		"name-algorithm":           {"sha1-name"},
		"residence-claim":          {"external-key-claims-fixed-tpm", "external-key-claims-fixed-parent"},
		"request-key":              {"request-key-swapped", "point-off-the-curve"},
		"ak-is-key":                {"ak-certified-as-tls-key"},
		"key-restricted":           {"key-restricted"},
		"key-sign":                 {"key-cannot-sign"},
		"key-fixed":                {"key-fixed-tpm-without-fixed-parent"},
		"ak-restricted":            {"ak-not-restricted"},
		"ak-fixed":                 {"ak-not-fixed", "ak-not-fixed-parent", "ak-not-fixed-tpm"},
		"ak-origin":                {"ak-made-elsewhere"},
		"ak-decrypt":               {"ak-decrypts"},
		"ak-x509sign":              {"ak-x509sign"},
		"ak-scheme":                {"ak-null-scheme", "ak-ecdaa"},
		"ak-name-algorithm":        {"ak-sha1-name"},
		"ak-certificate":           {"ak-public-of-another-ak", "ak-off-the-curve"},
		"signature":                {"signature-by-another-key", "signature-of-another-statement", "signature-of-zeros", "signature-r-over-order", "signature-trailing-bytes", "signature-truncated", "answer-signed-by-another-machine", "ecdsa-r-empty", "ecdsa-r-is-the-order", "ecdsa-r-just-under-the-order", "ecdsa-r-plus-the-order", "ecdsa-r-zero", "ecdsa-s-is-the-order", "ecdsa-s-over-the-order", "ecdsa-s-zero", "signature-is-an-hmac"},
		"signature-hash":           {"signature-sha1"},
		"signature-scheme":         {"signature-of-another-hash"},
		"chain":                    {"certificate-self-made", "certificate-signature-changed", "evidence-last-byte-changed"},
		"expired":                  {"certificate-expired", "certificate-expired-by-a-second"},
		"not-yet-valid":            {"certificate-not-yet-valid"},
		"critical-extension":       {"certificate-unknown-critical-extension"},
		"ca":                       {"ca-certificate-as-ak-certificate"},
		"key-usage":                {"key-usage-missing", "key-usage-of-a-ca", "key-usage-of-ak-and-ek", "key-usage-of-an-ek"},
		"ext-key-usage":            {"ext-key-usage-of-an-ek", "ext-key-usage-missing", "ext-key-usage-any", "ext-key-usage-of-ak-and-ek"},
		"membership":               {"stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine", "certificate-without-a-machine"},
		"retry":                    {"inventory-down"},
		"closed":                   {"closed"},
	} {
		t.Run(check, func(t *testing.T) {
			w := newWorld(t, worldOptions{road: attest.RoadAK, weak: true})
			expectGotIn(t, newNaive(w, check), w, want)
		})
	}
	t.Run("residence", func(t *testing.T) {
		w := newWorld(t, worldOptions{road: attest.RoadAK, resident: true, weak: true})
		expectGotIn(t, newNaive(w, "residence"), w, []string{"software-key-passed-off-as-resident", "imported-key-passed-off-as-resident"})
	})
}

// TestLenientPEM is a provider that reads PEM as it likes.
func TestLenientPEM(t *testing.T) {
	w := newWorld(t, worldOptions{road: attest.RoadAK, requests: true, weak: true})
	n := newNaive(w)
	n.tidy = true
	expectGotIn(t, n, w, []string{"pem-text-before", "pem-text-between", "pem-trailing-text", "pem-header", "pem-crlf",
		"pem-no-last-line-end", "pem-data-twice", "pem-unknown-block", "pem-order", "pem-blank-line-before", "pem-trailing-blank-line", "pem-blank-line-between",
		"pem-block-duplicate-provider", "pem-block-duplicate-request", "pem-block-duplicate-request-last", "pem-crlf-once"})
}
