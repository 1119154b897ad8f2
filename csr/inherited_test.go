package csr_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
)

// inheritingFixture is a kubelet's own serving request, and the record that it
// inherits from.
func inheritingFixture() (*requestFixture, *csr.IssuedRecord) {
	f := goodFixture(csr.SignerKubeletServing, csr.RequesterNode)
	record := f.records[goodCredential]
	record.Machine, record.ProviderID = "ak:sha256:00ff", goodProviderID
	record.NotBefore, record.NotAfter = issueTime.Add(-time.Hour), issueTime.Add(time.Hour)
	return f, record
}

func TestInheritAttestation(t *testing.T) {
	f, record := inheritingFixture()
	checked := f.mustCheck(t)
	before := *record
	attested, err := csr.InheritAttestation(checked, record, issueTime)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, *record); diff != "" {
		t.Errorf("the record was changed: %s", diff)
	}
	opts := goodOptions()
	opts.SignerNames = []string{csr.SignerKubeletServing}
	issued := mustIssue(t, newCA(t, opts), attested.Checked, attested.Verified)
	if got := issued.Certificate.DNSNames; len(got) != 1 || got[0] != goodNode {
		t.Errorf("DNS names %q", got)
	}
	if issued.Record.Machine != record.Machine || issued.Certificate.NotAfter.After(record.NotAfter) {
		t.Errorf("record %+v, certificate to %s", issued.Record, issued.Certificate.NotAfter)
	}
	if name, err := attested.InventoryName(); err != nil || name != "machine-1" {
		t.Errorf("name %q, %v", name, err)
	}
}

func TestInheritAttestationRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*csr.IssuedRecord)
		want   csr.Rule
	}{
		"another credential":        {func(r *csr.IssuedRecord) { r.CredentialID = "X509SHA256=ff" }, csr.RuleCredential},
		"another node's":            {func(r *csr.IssuedRecord) { r.NodeName = "node-2" }, csr.RuleCredential},
		"a recovery certificate's":  {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerRecoveryTPM }, csr.RuleCredential},
		"a serving certificate's":   {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerServingTPM }, csr.RuleCredential},
		"the insecure signer's":     {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerClientInsecure }, csr.RuleCredential},
		"an empty one":              {func(r *csr.IssuedRecord) { *r = csr.IssuedRecord{} }, csr.RuleCredential},
		"expired a second ago":      {func(r *csr.IssuedRecord) { r.NotAfter = issueTime.Add(-time.Second) }, csr.RuleInheritedExpired},
		"not valid for a second":    {func(r *csr.IssuedRecord) { r.NotBefore = issueTime.Add(time.Second) }, csr.RuleInheritedExpired},
		"without a machine":         {func(r *csr.IssuedRecord) { r.Machine = "" }, csr.RuleInheritedMachine},
		"of a machine since gone":   {func(r *csr.IssuedRecord) { r.ProviderID = "test://zone/instance-0" }, csr.RuleInheritedMachine},
		"both expired and moved on": {func(r *csr.IssuedRecord) { r.ProviderID, r.NotAfter = "x", issueTime.Add(-time.Second) }, csr.RuleInheritedMachine},
	} {
		t.Run(name, func(t *testing.T) {
			f, record := inheritingFixture()
			checked := f.mustCheck(t)
			changed := *record
			c.change(&changed)
			if _, err := csr.InheritAttestation(checked, &changed, issueTime); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	f, record := inheritingFixture()
	checked := f.mustCheck(t)
	if _, err := csr.InheritAttestation(checked, nil, issueTime); !errors.Is(err, csr.RuleCredential) {
		t.Errorf("no record: %v", err)
	}
	if _, err := csr.InheritAttestation(nil, record, issueTime); !errors.Is(err, csr.RuleNotChecked) {
		t.Errorf("no request: %v", err)
	}
}

// TestInheritAttestationOthersRequests gives requests that have evidence of their own
// to have, with a record that fits.
func TestInheritAttestationOthersRequests(t *testing.T) {
	_, record := inheritingFixture()
	for _, signer := range []string{csr.SignerServingTPM, csr.SignerClientTPM} {
		f := goodFixture(signer, csr.RequesterNode)
		if _, err := csr.InheritAttestation(f.mustCheck(t), record, issueTime); !errors.Is(err, csr.RuleInheritedPurpose) {
			t.Errorf("%s: %v", signer, err)
		}
	}
	// Two credential IDs, or none, name no certificate.
	for _, ids := range [][]string{nil, {}, {goodCredential, goodCredential}, {""}} {
		f, record := inheritingFixture()
		f.request.Spec.Extra[csr.ExtraCredentialID] = ids
		f.encode(t)
		if _, err := f.policy.Check(context.Background(), f.request); !errors.Is(err, csr.RuleCredential) {
			t.Errorf("%q: the policy: %v", ids, err)
		}
		// The request object is the caller's: it may change after the check.
		good, _ := inheritingFixture()
		checked := good.mustCheck(t)
		good.request.Spec.Extra[csr.ExtraCredentialID] = ids
		if _, err := csr.InheritAttestation(checked, record, issueTime); !errors.Is(err, csr.RuleCredential) {
			t.Errorf("%q: %v", ids, err)
		}
	}
}
