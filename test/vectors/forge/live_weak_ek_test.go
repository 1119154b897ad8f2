package forge

import (
	"testing"

	"github.com/nodeattest/nodeattest/attest"
)

// TestWeakProvidersOnRoadEK is TestWeakProviders for the road of the EK: each check
// that a provider could forget there, and the attacks that this lets in, without the
// prefix of their names.
func TestWeakProvidersOnRoadEK(t *testing.T) {
	for check, want := range map[string][]string{
		"qualified-name":           {"qualified-name-absent", "qualified-name-of-another-algorithm"},
		"key-x509sign":             {"key-x509sign"},
		"ak-sign":                  {"ak-cannot-sign"},
		"ak-encrypted-duplication": {"ak-encrypted-duplication"},
		"ak-symmetric":             {"ak-symmetric-scheme"},
		"qualified-signer":         {"ak-loaded-from-outside", "qualified-signer-absent", "qualified-signer-of-another-algorithm"},
		"basic-constraints":        {"ek-certificate-without-basic-constraints"},
		"statements":               {"statements-reversed", "statement-unknown", "two-certify-statements", "proof-twice"},
		"magic":                    {"forged-magic"},
		"type":                     {"forged-quote", "command-audit"},
		"trailing-bytes":           {"statement-trailing-bytes", "public-area-trailing-bytes", "signature-trailing-bytes", "public-area-absent"},
		"road":                     {"challenge-of-the-ak-road"},
		"cluster":                  {"answer-for-another-cluster"},
		"signer":                   {"answer-for-another-signer"},
		"requester":                {"answer-of-another-requester"},
		"lifetime":                 {"answer-for-another-lifetime"},
		"machine-key":              {"answer-of-another-machine-key", "answer-of-another-ek"},
		"ak-name":                  {"answer-of-another-ak", "answer-by-another-machine"},
		"request":                  {"answer-for-another-request"},
		"window":                   {"challenge-window-stretched", "challenge-window-reversed"},
		"late":                     {"answer-late", "evidence-of-yesterday"},
		"early":                    {"answer-early"},
		"old":                      {"answer-old"},
		"retired-key":              {"challenge-key-retired"},
		"unknown-key":              {"challenge-key-unknown", "echo-key-id-unknown"},
		"qualifying-data":          {"challenge-secret-made-up", "challenge-nonce-changed", "challenge-window-moved", "qualifying-data-absent", "qualifying-data-prefix", "qualifying-data-other", "qualifying-data-is-the-secret", "echo-issued-at", "echo-not-after", "echo-not-after-stretched-within-an-hour", "qualifying-data-extended"},
		"name":                     {"name-of-another-key", "public-area-attributes-changed"},
		"name-algorithm":           {"sha1-name"},
		"residence-claim":          {"external-key-claims-fixed-tpm", "external-key-claims-fixed-parent"},
		"request-key":              {"request-key-swapped", "point-off-the-curve"},
		"ak-is-key":                {"ak-certified-as-tls-key"},
		"ak-restricted":            {"ak-not-restricted"},
		"ak-fixed":                 {"ak-not-fixed", "ak-not-fixed-parent", "ak-not-fixed-tpm"},
		"ak-origin":                {"ak-made-elsewhere"},
		"ak-decrypt":               {"ak-decrypts"},
		"ak-x509sign":              {"ak-x509sign"},
		"ak-scheme":                {"ak-null-scheme", "ak-ecdaa"},
		"ak-name-algorithm":        {"ak-sha1-name"},
		"signature":                {"signature-by-another-key", "signature-of-another-statement", "signature-of-zeros", "signature-r-over-order", "signature-trailing-bytes", "signature-truncated", "ak-off-the-curve", "answer-signed-by-another-machine", "ecdsa-r-empty", "ecdsa-r-is-the-order", "ecdsa-r-just-under-the-order", "ecdsa-r-plus-the-order", "ecdsa-r-zero", "ecdsa-s-is-the-order", "ecdsa-s-over-the-order", "ecdsa-s-zero", "signature-is-an-hmac"},
		"signature-hash":           {"signature-sha1"},
		"ek-sources":               {"two-sources-of-the-ek"},
		"ek-list":                  {"ek-without-certificate"},
		"ek-roca":                  {WeakROCA},
		"ek-size":                  {WeakSize},
		"ek-exponent":              {WeakExponent},
		"expired":                  {"certificate-expired"},
		"not-yet-valid":            {"certificate-not-yet-valid"},
		"critical-extension":       {"certificate-unknown-critical-extension"},
		"ca":                       {"ca-certificate-as-ek-certificate"},
		"key-usage":                {"key-usage-missing", "key-usage-of-a-ca", "key-usage-of-an-ak"},
		"ext-key-usage":            {"ext-key-usage-of-an-ak", "ext-key-usage-missing", "ek-certificate-for-platforms-too"},
		"chain":                    {"certificate-self-made", "certificate-signature-changed", "evidence-byte-changed", "evidence-last-byte-changed"},
		"directory":                {"certificate-without-a-directory-name"},
		"membership":               {"stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine", "second-ek-of-one-tpm"},
		"retry":                    {"inventory-down"},
	} {
		t.Run(check, func(t *testing.T) {
			w := newWorld(t, worldOptions{road: attest.RoadEK, weak: true})
			expectGotIn(t, newNaive(w, check), w, want)
		})
	}
	t.Run("closed", func(t *testing.T) {
		w := newWorld(t, worldOptions{road: attest.RoadEK, weak: true})
		expectGotIn(t, newNaive(w, "closed"), w, []string{"closed"})
	})
	t.Run("residence", func(t *testing.T) {
		w := newWorld(t, worldOptions{road: attest.RoadEK, resident: true, weak: true})
		expectGotIn(t, newNaive(w, "residence"), w, []string{"software-key-passed-off-as-resident", "imported-key-passed-off-as-resident"})
	})
}

// TestWeakChallenges are providers whose challenge another machine can open.
func TestWeakChallenges(t *testing.T) {
	for check, want := range map[string][]string{
		"credential-machine": {"credential-of-another-machine"},
		"credential-name":    {"credential-for-an-ak-in-software"},
	} {
		t.Run(check, func(t *testing.T) {
			w := newWorld(t, worldOptions{road: attest.RoadEK, weak: true})
			expectGotIn(t, newNaive(w, check), w, want)
		})
	}
	t.Run("credential-ek", func(t *testing.T) { // two sources, in the challenge and in the answer
		w := newWorld(t, worldOptions{road: attest.RoadEK, weak: true})
		n := newNaive(w, "credential-ek", "ek-sources")
		expectGotIn(t, n, w, []string{"two-sources-of-the-ek", "credential-for-an-ek-beside-the-certificate"})
	})
}

// TestWeakQuotes are providers that forget a check of quotes.
func TestWeakQuotes(t *testing.T) {
	for check, want := range map[string][]string{
		"statements":            {"statements-reversed", "statement-unknown", "two-certify-statements", "two-quotes", "answer-event-log-before-quote", "proof-twice"},
		"quote-bank":            {"quote-of-no-pcr-of-a-second-bank", "quote-of-an-unknown-bank", "quote-pcr-of-the-wrong-bank", "quote-pcr-of-an-unknown-bank"},
		"quote-ak":              {"quote-by-an-ak-that-decrypts", "quote-by-an-ak-that-is-not-restricted", "quote-by-an-ak-without-a-scheme", "quote-by-an-ak-under-a-sha1-name", "quote-by-a-key-from-outside", "quote-by-nobody"},
		"quote-canonical":       {"answer-quote-pcrs-descending", "answer-quote-with-a-trailing-field"},
		"quote-missing":         {"quote-missing"},
		"quote-magic":           {"quote-forged-magic"},
		"quote-type":            {"quote-is-the-certify-statement", "quote-is-a-certify-statement"},
		"quote-qualifying-data": {"quote-qualifying-data-absent", "quote-qualifying-data-other", "quote-qualifying-data-of-certify", "answer-quote-of-another-challenge", "quote-with-a-prefix-of-the-qualifying-data"},
		"quote-boot":            {"quote-of-another-boot", "answer-quote-before-a-resume"},
		"quote-sha1":            {"quote-signature-sha1"},
		"quote-signature":       {"quote-by-another-ak", "quote-signature-truncated", "answer-quote-signed-by-another-ak", "quote-signed-with-r-zero", "quote-signed-with-s-over-the-order"},
		"quote-twice-first":     {"quote-value-twice-good-first", "answer-quote-pcr-twice-in-der"},
		"quote-twice-last":      {"quote-value-twice-good-last", "answer-quote-pcr-twice-in-der"},
		"quote-selection":       {"quote-value-outside-the-selection", "quote-of-nothing", "quote-pcr-outside-the-selection"},
		"quote-digest":          {"quote-value-changed", "quote-pcr-digest-absent", "quote-pcr-digest-changed", "quote-pcr-digest-under-another-hash"},
		"quote-needed":          {"quote-without-a-needed-pcr", "quote-of-no-bank", "quote-of-one-bank-twice"},
		"quote-policy":          {"quote-values-not-accepted", "quote-pcr-value-moved"},
	} {
		t.Run(check, func(t *testing.T) {
			for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
				w := newWorld(t, worldOptions{road: road, quoted: true, weak: true})
				expectGotIn(t, newNaive(w, check), w, want)
			}
		})
	}
}
