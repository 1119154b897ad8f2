package csr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

const goodIdentity = "ak:sha256:00ff"

// inheritingFixture is a kubelet's own serving request, and the record that it
// inherits from.
func inheritingFixture() (*requestFixture, *csr.IssuedRecord) {
	f := goodFixture(csr.SignerKubeletServing, csr.RequesterNode)
	record := f.records[goodCredential]
	record.Machine, record.MachineUID, record.NodeUID, record.ProviderID = goodIdentity, goodMachineUID, goodNodeUID, goodProviderID
	record.NotBefore, record.NotAfter = issueTime.Add(-time.Hour), issueTime.Add(2*time.Hour)
	return f, record
}

// inherit has the policy check the request, then calls Inherit.
func inherit(t *testing.T, f *requestFixture) (*csr.Attested, error) {
	t.Helper()
	checked, err := f.check(t)
	if err != nil {
		return nil, err
	}
	return checked.Inherit(issueTime)
}

func TestInherit(t *testing.T) {
	f, record := inheritingFixture()
	checked := f.mustCheck(t)
	before := *record
	attested, err := checked.Inherit(issueTime)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, *record); diff != "" {
		t.Errorf("the record was changed: %s", diff)
	}
	opts := goodOptions()
	opts.SignerNames = []string{csr.SignerKubeletServing}
	issued := mustIssue(t, newCA(t, opts), attested)
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

func TestInheritRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*csr.IssuedRecord)
		want   csr.Check
	}{
		"another credential":        {func(r *csr.IssuedRecord) { r.CredentialID = "X509SHA256=ff" }, csr.CheckCredential},
		"another node's":            {func(r *csr.IssuedRecord) { r.NodeName = "node-2" }, csr.CheckCredential},
		"a recovery certificate's":  {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerRecoveryTPM }, csr.CheckCredential},
		"a serving certificate's":   {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerServingTPM }, csr.CheckCredential},
		"the insecure signer's":     {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerClientInsecure }, csr.CheckCredential},
		"an empty one":              {func(r *csr.IssuedRecord) { *r = csr.IssuedRecord{} }, csr.CheckCredential},
		"expired a second ago":      {func(r *csr.IssuedRecord) { r.NotAfter = issueTime.Add(-time.Second) }, csr.CheckInheritedExpired},
		"not valid for a second":    {func(r *csr.IssuedRecord) { r.NotBefore = issueTime.Add(time.Second) }, csr.CheckInheritedExpired},
		"without a machine":         {func(r *csr.IssuedRecord) { r.Machine = "" }, csr.CheckInheritedMachine},
		"of another provider ID":    {func(r *csr.IssuedRecord) { r.ProviderID = "test://zone/instance-0" }, csr.CheckInheritedMachine},
		"of the machine before":     {func(r *csr.IssuedRecord) { r.MachineUID = "uid-of-machine-0" }, csr.CheckInheritedMachine},
		"of no machine's UID":       {func(r *csr.IssuedRecord) { r.MachineUID = "" }, csr.CheckInheritedMachine},
		"both expired and moved on": {func(r *csr.IssuedRecord) { r.ProviderID, r.NotAfter = "x", issueTime.Add(-time.Second) }, csr.CheckInheritedMachine},
	} {
		t.Run(name, func(t *testing.T) {
			f, record := inheritingFixture()
			c.change(record)
			if _, err := inherit(t, f); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	f, _ := inheritingFixture()
	f.records = nil
	if _, err := inherit(t, f); !errors.Is(err, csr.CheckCredential) {
		t.Errorf("no record: %v", err)
	}
	if _, err := (*csr.Checked)(nil).Inherit(issueTime); !errors.Is(err, csr.CheckNotChecked) {
		t.Errorf("no request: %v", err)
	}
}

// TestInheritOthersRequests gives requests that have evidence of their own.
func TestInheritOthersRequests(t *testing.T) {
	for _, signer := range []string{csr.SignerServingTPM, csr.SignerClientTPM} {
		f := goodFixture(signer, csr.RequesterNode)
		if _, err := f.mustCheck(t).Inherit(issueTime); !errors.Is(err, csr.CheckInheritedPurpose) {
			t.Errorf("%s: %v", signer, err)
		}
	}
	// Two credential IDs, or none, name no certificate.
	for _, ids := range [][]string{nil, {}, {goodCredential, goodCredential}, {""}} {
		f, _ := inheritingFixture()
		f.request.User.Extra[csr.ExtraCredentialID] = ids
		f.encode(t)
		if _, err := f.policy.Check(context.Background(), f.request.Parsed()); !errors.Is(err, csr.CheckCredential) {
			t.Errorf("%q: the policy: %v", ids, err)
		}
	}
}

// TestInheritSeesTheCheckedRequest changes the object after the check, to
// come with another credential than the one that the policy saw.
func TestInheritSeesTheCheckedRequest(t *testing.T) {
	const stolen = "X509SHA256=0000000000000000000000000000000000000000000000000000000000000002"
	f, record := inheritingFixture()
	checked := f.mustCheck(t)
	f.request.User.Extra[csr.ExtraCredentialID] = []string{stolen}
	if _, err := checked.Inherit(issueTime); err != nil {
		t.Errorf("the request that was checked: %v", err)
	}
	// Record and machine are as the policy saw them, too.
	record.Machine, record.MachineUID, f.machine.UID = "ak:sha256:00fe", "uid-of-machine-2", "uid-of-machine-2"
	attested, err := checked.Inherit(issueTime)
	if err != nil || attested.Machine() != goodIdentity {
		t.Errorf("got %+v, %v", attested, err)
	}
}

// TestInheritNeedsTheMachine tries what inventories state of their machines.
// goodIdentity and goodProviderID are the machine's, and it was recorded under both.
func TestInheritNeedsTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		inventory csr.Machine
		change    func(*csr.IssuedRecord)
		want      error // nil: accepted
	}{
		"UID":                              {inventory: csr.Machine{UID: "u1"}, change: func(r *csr.IssuedRecord) { r.MachineUID = "u1" }},
		"UID, another":                     {csr.Machine{UID: "u2"}, func(r *csr.IssuedRecord) { r.MachineUID = "u1" }, csr.CheckInheritedMachine},
		"UID, not recorded":                {csr.Machine{UID: "u2", ProviderID: goodProviderID}, nil, csr.CheckInheritedMachine},
		"UID, no longer stated":            {csr.Machine{ProviderID: goodProviderID}, func(r *csr.IssuedRecord) { r.MachineUID = "u1" }, csr.CheckInheritedMachine},
		"UID, and another provider ID":     {csr.Machine{UID: "u1", ProviderID: "x"}, func(r *csr.IssuedRecord) { r.MachineUID = "u1" }, csr.CheckInheritedMachine},
		"UID, and another identity":        {csr.Machine{UID: "u1", Identity: "x"}, func(r *csr.IssuedRecord) { r.MachineUID = "u1" }, csr.CheckInheritedMachine},
		"UID, provider ID not recorded":    {inventory: csr.Machine{UID: "u1", ProviderID: "x"}, change: func(r *csr.IssuedRecord) { r.MachineUID, r.ProviderID = "u1", "" }},
		"provider ID":                      {inventory: csr.Machine{ProviderID: goodProviderID}},
		"provider ID of Azure, by case":    {inventory: csr.Machine{ProviderID: "azure:///A"}, change: func(r *csr.IssuedRecord) { r.ProviderID = "azure:///a" }},
		"provider ID, another":             {csr.Machine{ProviderID: "x"}, nil, csr.CheckInheritedMachine},
		"provider ID, not recorded":        {csr.Machine{ProviderID: goodProviderID}, func(r *csr.IssuedRecord) { r.ProviderID = "" }, csr.CheckInheritedMachine},
		"no provider ID, ever":             {csr.Machine{ProviderID: "none"}, nil, csr.CheckInheritedMachine},
		"none, and none was recorded":      {csr.Machine{ProviderID: "none"}, func(r *csr.IssuedRecord) { r.ProviderID = "" }, refusal.CheckConfig},
		"none, and the UID":                {inventory: csr.Machine{UID: "u1", ProviderID: "none"}, change: func(r *csr.IssuedRecord) { r.MachineUID, r.ProviderID = "u1", "" }},
		"identity":                         {inventory: csr.Machine{Identity: goodIdentity}},
		"identity, another":                {csr.Machine{Identity: "ak:sha256:00fe"}, nil, csr.CheckInheritedMachine},
		"identity, and another's ID":       {csr.Machine{Identity: goodIdentity, ProviderID: "x"}, nil, csr.CheckInheritedMachine},
		"nothing":                          {csr.Machine{}, nil, refusal.CheckConfig},
		"nothing, and nothing is recorded": {csr.Machine{}, func(r *csr.IssuedRecord) { r.ProviderID = "" }, refusal.CheckConfig},
		"Node":                             {inventory: csr.Machine{UID: "u1", NodeUID: "n1"}, change: func(r *csr.IssuedRecord) { r.MachineUID, r.NodeUID = "u1", "n1" }},
		"Node, made again":                 {csr.Machine{UID: "u1", NodeUID: "n2"}, func(r *csr.IssuedRecord) { r.MachineUID, r.NodeUID = "u1", "n1" }, csr.CheckInheritedNode},
		"Node, not recorded yet":           {csr.Machine{UID: "u1", NodeUID: "n1"}, func(r *csr.IssuedRecord) { r.MachineUID = "u1" }, refusal.ErrRetry},
		"Node, deleted":                    {csr.Machine{UID: "u1"}, func(r *csr.IssuedRecord) { r.MachineUID, r.NodeUID = "u1", "n1" }, refusal.ErrRetry},
		"Node not recorded, machine gone":  {csr.Machine{UID: "u2", NodeUID: "n1"}, func(r *csr.IssuedRecord) { r.MachineUID = "u1" }, csr.CheckInheritedMachine},
	} {
		t.Run(name, func(t *testing.T) {
			f, record := inheritingFixture()
			record.MachineUID, record.NodeUID = "", ""
			if c.change != nil {
				c.change(record)
			}
			f.machine.UID, f.machine.Identity, f.machine.ProviderID, f.machine.NodeUID = c.inventory.UID, c.inventory.Identity, c.inventory.ProviderID, c.inventory.NodeUID
			attested, err := inherit(t, f)
			if (err == nil) != (c.want == nil) || c.want != nil && !errors.Is(err, c.want) || (attested != nil) != (err == nil) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			refused := errors.Is(err, csr.CheckInheritedMachine) || errors.Is(err, csr.CheckInheritedNode)
			if verdict := csr.Decide(err).Verdict; err != nil && (verdict == csr.VerdictDeny) != refused {
				t.Errorf("got the verdict %v for %v", verdict, err)
			}
		})
	}
}

// A client certificate that is about to end gives nothing, and is no refusal; one that is
// another's is refused all the same.
func TestInheritTooLittleLeft(t *testing.T) {
	for _, c := range []struct {
		left  time.Duration
		other bool
		want  csr.Verdict // VerdictApprove: no error
	}{
		{30 * time.Second, false, csr.VerdictApprove},
		{30*time.Second - 1, false, csr.VerdictRetry},
		{0, false, csr.VerdictRetry},
		{-1, false, csr.VerdictDeny},
		{time.Second, true, csr.VerdictDeny},
	} {
		t.Run(fmt.Sprint(c.left), func(t *testing.T) {
			f, record := inheritingFixture()
			record.NotAfter = issueTime.Add(c.left)
			if c.other {
				record.MachineUID = "another"
			}
			attested, err := inherit(t, f)
			d := csr.Decide(err)
			if err == nil {
				d.Verdict = csr.VerdictApprove
			}
			if d.Verdict != c.want || (attested != nil) != (err == nil) {
				t.Errorf("%v left, another machine's %t: got %v, want %v", c.left, c.other, err, c.want)
			}
		})
	}
}

// IssuedRecord is called once, with the request, and its result is used.
func TestRecordsIsAskedOnce(t *testing.T) {
	f, record := inheritingFixture()
	asked := 0
	f.policy.IssuedRecord = func(_ context.Context, id string, r *csr.Request) (*csr.IssuedRecord, error) {
		if asked++; id != goodCredential || r != f.request {
			t.Errorf("asked for %q of %p, want %q of %p", id, r, goodCredential, f.request)
		}
		return record, nil
	}
	if _, err := inherit(t, f); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}
