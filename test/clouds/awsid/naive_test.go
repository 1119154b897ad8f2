// Package awsid compares the verifier of EC2's identity documents with plain readings of them.
package awsid

import (
	"crypto/x509"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/nodeattest/nodeattest/refusal"
)

// verifyNaively verifies a document with another library, but for the checks that it is to
// forget. It returns the instance's ID, or "" for a refusal.
func verifyNaively(data []byte, table map[string]*x509.Certificate, now time.Time, forget ...refusal.Check) string {
	must := func(check refusal.Check, ok bool) bool { return ok || slices.Contains(forget, check) }
	if !must(refusal.Check("awsid-size"), len(data) <= 8<<10) || len(data) > 64<<10 {
		return ""
	}
	p, err := pkcs7.Parse(data)
	if err != nil || len(p.Signers) != 1 {
		return ""
	}
	var d struct{ AccountID, Region, InstanceID, PendingTime string }
	if json.Unmarshal(p.Content, &d) != nil || d.AccountID == "" || d.InstanceID == "" || d.PendingTime == "" {
		return ""
	}
	var at time.Time
	attributes := p.UnmarshalSignedAttribute(pkcs7.OIDAttributeSigningTime, &at) == nil
	own, known := table[d.Region]
	if !must(refusal.Check("awsid-attributes"), attributes) || !must(refusal.Check("awsid-future"), !at.After(now.Add(time.Minute))) || !must(refusal.Check("awsid-region"), known) {
		return ""
	}
	signers := []*x509.Certificate{own}
	if slices.Contains(forget, refusal.Check("awsid-signer")) || !known { // one pool for all regions
		signers = nil
		for _, cert := range table {
			signers = append(signers, cert)
		}
	}
	p.Certificates = signers
	if !must(refusal.Check("awsid-signature"), p.Verify() == nil) {
		return ""
	}
	return d.InstanceID
}

// TestWeakVersions has the plain verifier forget one check: what gets in then is there for
// that check.
func TestWeakVersions(t *testing.T) {
	e, list := load(t)
	gotIn := func(forget ...refusal.Check) (names []string) {
		for _, v := range list {
			if verifyNaively(v.Document, e.certificates, e.Time, forget...) != "" && v.Expect != "" {
				names = append(names, v.Name)
			}
		}
		return names
	}
	before := gotIn() // the attacks that the other library admits, of several kinds
	for forget, want := range map[refusal.Check][]string{
		refusal.Check("awsid-size"):      {"input-a-larger-one"},
		refusal.Check("awsid-signer"):    {"region-naming-another-region", "region-signed-by-another-region"},
		refusal.Check("awsid-region"):    {"region-naming-a-region-that-nobody-knows"},
		refusal.Check("awsid-signature"): {"region-another-document-under-good-attributes", "region-another-regions-serial-number", "shape-another-key-the-same-names", "shape-half-a-signature", "shape-no-signature"},
	} {
		got := slices.DeleteFunc(gotIn(forget), func(name string) bool { return slices.Contains(before, name) })
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("without %s: %s is not in %q", forget, name, got)
			}
		}
	}
	t.Logf("the other library lets in %q", before)
}
