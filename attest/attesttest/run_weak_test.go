package attesttest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

func TestNaiveIsStrict(t *testing.T) {
	for _, options := range []WorldOptions{{}, {RequireTPMResident: true}, {RequireQuote: true}, {Roads: onlyAK}, {Roads: onlyEK}} {
		w := NewWorld(t, options)
		for _, o := range Try(context.Background(), newNaive(w), w) {
			if o.Fault != "" {
				t.Errorf("%s: %s: %v", o.Name, o.Fault, o.Err)
			}
		}
	}
}

var onlyAK, onlyEK = []attest.Road{attest.RoadAK}, []attest.Road{attest.RoadEK}

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
		"closed":                   {"ek-road-closed"},
	} {
		t.Run(check, func(t *testing.T) {
			w := NewWorld(t, WorldOptions{Roads: onlyAK})
			expectGotIn(t, newNaive(w, check), w, want)
		})
	}
	t.Run("residence", func(t *testing.T) {
		w := NewWorld(t, WorldOptions{Roads: onlyAK, RequireTPMResident: true})
		expectGotIn(t, newNaive(w, "residence"), w, []string{"software-key-passed-off-as-resident", "imported-key-passed-off-as-resident"})
	})
}

func expectGotIn(t *testing.T, p csr.Provider, w *World, want []string) {
	t.Helper()
	var outcomes []Outcome
	for _, a := range attacksIn(w) {
		// A naive provider leaves the request to csr.Policy, but for the provider's name.
		if !leavesRequests(p, w) || a.Class != classRequest || strings.HasPrefix(a.Name, "provider-") {
			outcomes = append(outcomes, w.try(context.Background(), p, &a))
		}
	}
	got := GotIn(outcomes)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got in: %q\nwant:   %q", got, want)
	}
}

// leavesRequests says of a provider that it has the world's policy judge requests.
func leavesRequests(p csr.Provider, w *World) bool {
	if n, ok := p.(*naiveDocuments); ok {
		p = &n.naive
	}
	n, ok := p.(*naive)
	return ok && !n.tidy && n.policy == w.Config.Policy
}

// TestWeakPolicies are providers whose policy or reading of a request is weak.
func TestWeakPolicies(t *testing.T) {
	t.Run("every node has a machine", func(t *testing.T) {
		w := NewWorld(t, WorldOptions{Roads: onlyAK})
		n := newNaive(w, "membership")
		n.policy = &csr.Policy{ClusterIDs: []string{ClusterID}, Now: w.Now, SignerNames: w.Config.Policy.SignerNames, Machines: func(ctx context.Context, q csr.Question) (*csr.Machine, error) {
			m, err := w.machine(ctx, csr.Question{NodeName: NodeName})
			if err != nil {
				return nil, err
			}
			another := *m
			another.Name, another.NodeName = "machine-of-"+q.NodeName, q.NodeName
			return &another, nil
		}}
		want := []string{"stranger", "stranger-with-annotation", "machine-of-another-node", "second-name-for-a-machine",
			"certificate-without-a-machine", "inventory-of-another-node", "machine-not-ready", "node-unknown", "node-not-ready", "node-of-nobody-by-stranger",
			"inventory-of-another-machine", "inventory-of-another-provider"}
		expectGotIn(t, n, w, want)
	})
	t.Run("serves the insecure signer", func(t *testing.T) {
		w := NewWorld(t, WorldOptions{Roads: onlyAK})
		n := newNaive(w)
		n.policy = &csr.Policy{ClusterIDs: []string{ClusterID}, Now: w.Now, SignerNames: append(slices.Clone(w.Config.Policy.SignerNames), "cluster.x-k8s.io/kube-apiserver-client-kubelet-another"), Machines: w.machine}
		expectGotIn(t, n, w, nil) // the evidence must agree: the policy's own rule
	})
	t.Run("reads PEM leniently", func(t *testing.T) {
		w := NewWorld(t, WorldOptions{Roads: onlyAK})
		n := newNaive(w)
		n.tidy = true
		expectGotIn(t, n, w, []string{"pem-text-before", "pem-text-between", "pem-trailing-text", "pem-header", "pem-crlf",
			"pem-no-last-line-end", "pem-data-twice", "pem-unknown-block", "pem-order", "pem-blank-line-before", "pem-trailing-blank-line", "pem-blank-line-between",
			"pem-block-duplicate-provider", "pem-block-duplicate-request", "pem-block-duplicate-request-last", "pem-crlf-once"})
	})
	t.Run("decides without the inventory", func(t *testing.T) {
		w := NewWorld(t, WorldOptions{Roads: onlyAK})
		n := newNaive(w)
		n.policy = &csr.Policy{ClusterIDs: []string{ClusterID}, Now: w.Now, SignerNames: w.Config.Policy.SignerNames, Machines: func(ctx context.Context, q csr.Question) (*csr.Machine, error) {
			m, err := w.machine(ctx, q)
			if errors.Is(err, errDown) {
				return w.known[q.NodeName], nil
			}
			return m, err
		}}
		expectGotIn(t, n, w, []string{"inventory-down"})
	})
}

// misbehaving does one thing that no provider may do.
type misbehaving struct {
	*naive
	before func(*csr.Request)
	after  func(*csr.Attested, error) (*csr.Attested, error)
}

func (m *misbehaving) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	if m.before != nil {
		m.before(r.Request())
	}
	a, err := m.naive.VerifyClientAttestationData(ctx, r)
	if m.after != nil {
		return m.after(a, err)
	}
	return a, err
}

func TestMisbehavingProviders(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*csr.Request)
		after  func(*csr.Attested, error) (*csr.Attested, error)
		want   string // among what is reported
	}{
		"panics": {before: func(r *csr.Request) {
			if len(r.Spec.Usages) == 0 {
				panic("no usages")
			}
		}, want: "usages-missing"},
		"changes the request": {before: func(r *csr.Request) { r.Metadata.Annotations = map[string]string{"seen": "yes"} }, want: "honest-client"},
		"refuses everybody":   {after: func(*csr.Attested, error) (*csr.Attested, error) { return nil, naiveRefusal("everybody") }, want: "honest-client"},
		"returns nothing":     {after: func(*csr.Attested, error) (*csr.Attested, error) { return nil, nil }, want: "honest-client"},
		"hides its refusals":  {after: func(a *csr.Attested, err error) (*csr.Attested, error) { return a, hide(err) }, want: "forged-magic"},
		"names no machine": {after: func(a *csr.Attested, err error) (*csr.Attested, error) {
			if a != nil {
				a = a.Checked().Vouch("", a.Grant(), nil)
			}
			return a, err
		}, want: "honest-client"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t, WorldOptions{Roads: onlyAK})
			p := &misbehaving{naive: newNaive(w), before: c.before, after: c.after}
			if got := GotIn(Try(context.Background(), p, w)); !slices.Contains(got, c.want) {
				t.Errorf("got %q, want %s among them", got, c.want)
			}
		})
	}
}

// hide turns a refusal into an error of no kind.
func hide(err error) error {
	if err == nil {
		return nil
	}
	return errors.New("something went wrong")
}
