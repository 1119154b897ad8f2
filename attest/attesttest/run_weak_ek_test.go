package attesttest

import (
	"context"
	"slices"
	"testing"
)

// prefixed puts the prefix of the road of the EK in front of names.
func prefixed(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = roadEKPrefix + name
	}
	return out
}

// TestWeakProvidersOnRoadEK is TestWeakProviders for the road of the EK: each check
// that a provider could forget there, and the attacks that this lets in, without the
// prefix of their names.
func TestWeakProvidersOnRoadEK(t *testing.T) {
	for check, want := range map[string][]string{
		"statements":         {"statements-reversed", "statement-unknown", "two-certify-statements"},
		"magic":              {"forged-magic"},
		"type":               {"forged-quote", "command-audit"},
		"bytes-behind":       {"statement-with-bytes-behind", "public-area-with-bytes-behind", "signature-with-bytes-behind"},
		"road":               {"challenge-of-the-ak-road"},
		"cluster":            {"answer-for-another-cluster"},
		"signer":             {"answer-for-another-signer"},
		"requester":          {"answer-of-another-requester"},
		"lifetime":           {"answer-for-another-lifetime"},
		"machine-key":        {"answer-of-another-machine-key", "answer-of-another-ek"},
		"ak-name":            {"answer-of-another-ak"},
		"request":            {"answer-for-another-request"},
		"window":             {"challenge-window-stretched", "challenge-window-reversed"},
		"late":               {"answer-late", "evidence-of-yesterday"},
		"early":              {"answer-early"},
		"old":                {"answer-old"},
		"retired-key":        {"challenge-key-retired"},
		"unknown-key":        {"challenge-key-unknown"},
		"qualifying-data":    {"challenge-secret-made-up", "challenge-nonce-changed", "challenge-window-moved", "qualifying-data-absent", "qualifying-data-prefix", "qualifying-data-other", "qualifying-data-is-the-secret"},
		"name":               {"name-of-another-key"},
		"name-algorithm":     {"sha1-name"},
		"residence-claim":    {"external-key-claims-fixed-tpm"},
		"request-key":        {"request-key-swapped"},
		"ak-is-key":          {"ak-certified-as-tls-key"},
		"ak-restricted":      {"ak-not-restricted"},
		"ak-fixed":           {"ak-not-fixed"},
		"ak-origin":          {"ak-made-elsewhere"},
		"ak-decrypt":         {"ak-decrypts"},
		"ak-x509sign":        {"ak-x509sign"},
		"ak-scheme":          {"ak-null-scheme"},
		"ak-name-algorithm":  {"ak-sha1-name"},
		"signature":          {"signature-by-another-key", "signature-of-another-statement", "signature-of-zeros", "signature-r-over-order", "signature-with-bytes-behind", "signature-truncated"},
		"signature-hash":     {"signature-sha1"},
		"ek-sources":         {"two-sources-of-the-ek"},
		"ek-list":            {"ek-without-certificate"},
		"ek-roca":            {weakROCA},
		"ek-size":            {weakSize},
		"ek-exponent":        {weakExponent},
		"expired":            {"certificate-expired"},
		"not-yet-valid":      {"certificate-not-yet-valid"},
		"critical-extension": {"certificate-unknown-critical-extension"},
		"ca":                 {"ca-certificate-as-ek-certificate"},
		"key-usage":          {"key-usage-missing", "key-usage-of-a-ca", "key-usage-of-an-ak"},
		"ext-key-usage":      {"ext-key-usage-of-an-ak", "ext-key-usage-missing"},
		"directory":          {"certificate-without-a-directory-name"},
		"membership":         {"stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine", "second-ek-of-one-tpm"},
		"retry":              {"inventory-down"},
	} {
		t.Run(check, func(t *testing.T) {
			w := NewWorld(t, &WorldOptions{Roads: onlyEK})
			expectGotIn(t, newNaive(w, check), w, prefixed(want))
		})
	}
	t.Run("chain", func(t *testing.T) {
		w := NewWorld(t, &WorldOptions{Roads: onlyEK})
		outcomes := Try(context.Background(), newNaive(w, "chain"), w)
		// The byte in the middle is one of the certificate, which may have no meaning.
		outcomes = slices.DeleteFunc(outcomes, func(o Outcome) bool { return o.Name == roadEKPrefix+"evidence-byte-changed" })
		got := GotIn(outcomes)
		slices.Sort(got)
		if want := prefixed([]string{"certificate-self-made", "certificate-signature-changed", "evidence-last-byte-changed"}); !slices.Equal(got, want) {
			t.Errorf("got in: %q\nwant:   %q", got, want)
		}
	})
	t.Run("closed", func(t *testing.T) {
		w := NewWorld(t, &WorldOptions{Roads: onlyEK})
		expectGotIn(t, newNaive(w, "closed"), w, []string{"closed"})
	})
	t.Run("residence", func(t *testing.T) {
		w := NewWorld(t, &WorldOptions{Roads: onlyEK, RequireTPMResident: true})
		expectGotIn(t, newNaive(w, "residence"), w, prefixed([]string{"software-key-passed-off-as-resident", "imported-key-passed-off-as-resident"}))
	})
}

// TestWeakChallenges are providers whose challenge can be opened by somebody else.
func TestWeakChallenges(t *testing.T) {
	for check, want := range map[string][]string{
		"credential-machine": {"credential-of-another-machine"},
		"credential-name":    {"credential-for-an-ak-in-software"},
	} {
		t.Run(check, func(t *testing.T) {
			w := NewWorld(t, nil)
			expectGotIn(t, newNaive(w, check), w, prefixed(want))
		})
	}
	t.Run("credential-ek", func(t *testing.T) { // two sources, in the challenge and in the answer
		w := NewWorld(t, nil)
		n := newNaive(w, "credential-ek", "ek-sources")
		expectGotIn(t, n, w, prefixed([]string{"two-sources-of-the-ek", "credential-for-an-ek-beside-the-certificate"}))
	})
}

// TestWeakQuotes are providers that forget a check of quotes.
func TestWeakQuotes(t *testing.T) {
	for check, want := range map[string][]string{
		"statements":            {"statements-reversed", "statement-unknown", "two-certify-statements", "two-quotes"},
		"quote-missing":         {"quote-missing"},
		"quote-magic":           {"quote-forged-magic"},
		"quote-type":            {"quote-is-the-certify-statement"},
		"quote-qualifying-data": {"quote-qualifying-data-absent", "quote-qualifying-data-other", "quote-qualifying-data-of-certify"},
		"quote-boot":            {"quote-of-another-boot"},
		"quote-sha1":            {"quote-signature-sha1"},
		"quote-signature":       {"quote-by-another-ak", "quote-signature-truncated"},
		"quote-twice-first":     {"quote-value-twice-good-first"},
		"quote-twice-last":      {"quote-value-twice-good-last"},
		"quote-selection":       {"quote-value-outside-the-selection", "quote-of-nothing"},
		"quote-digest":          {"quote-value-changed"},
		"quote-needed":          {"quote-without-a-needed-pcr"},
		"quote-policy":          {"quote-values-not-accepted"},
	} {
		t.Run(check, func(t *testing.T) {
			w := NewWorld(t, &WorldOptions{RequireQuote: true})
			expectGotIn(t, newNaive(w, check), w, append(prefixed(want), want...))
		})
	}
}
