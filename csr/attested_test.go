package csr_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestAttestedDecision: an approval needs all of a checked request for a certificate and a
// machine.
func TestAttestedDecision(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.request.Metadata.UID = "u"
	checked := f.mustCheck(t)
	hello := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	hello.request.Spec.SignerName = csr.SignerChallengeTPM
	unsigned := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	unsigned.builder.badSignature = true
	unsigned.encode(t)
	unproven, err := unsigned.policy.CheckUnsigned(t.Context(), unsigned.request.Parsed(), csr.SignerClientTPM)
	if err != nil {
		t.Fatal(err)
	}
	var nobody *csr.Checked
	anonymous := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	anonymous.request.Metadata.UID = ""
	for name, c := range map[string]struct {
		attested *csr.Attested
		want     csr.Verdict
	}{
		"good":                {checked.Vouch(goodIdentity, csr.Grant{}, nil), csr.VerdictApprove},
		"nil":                 {nil, csr.VerdictRetry},
		"zero":                {new(csr.Attested), csr.VerdictRetry},
		"of no request":       {nobody.Vouch(goodIdentity, csr.Grant{}, nil), csr.VerdictRetry},
		"not checked":         {new(csr.Checked).Vouch(goodIdentity, csr.Grant{}, nil), csr.VerdictRetry},
		"without machine":     {checked.Vouch("", csr.Grant{}, nil), csr.VerdictRetry},
		"of a hello":          {hello.mustCheck(t).Vouch(goodIdentity, csr.Grant{}, nil), csr.VerdictRetry},
		"good, and narrowed":  {goodVerified(checked).Until(issueTime.Add(1)), csr.VerdictApprove},
		"good, and ended":     {goodVerified(checked).Until(issueTime), csr.VerdictDeny},
		"without a UID":       {anonymous.mustCheck(t).Vouch(goodIdentity, csr.Grant{}, nil), csr.VerdictRetry},
		"without signature":   {unproven.Vouch(goodIdentity, csr.Grant{}, nil), csr.VerdictDeny},
		"nil, and narrowed":   {(*csr.Attested)(nil).Until(issueTime), csr.VerdictRetry},
		"by a provider":       {throughProvider(t), csr.VerdictApprove},
		"of a kubelet's own":  {inherited(t), csr.VerdictApprove},
		"of the insecure one": {insecureAttested(t), csr.VerdictApprove},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.attested.Decision()
			if d.Verdict != c.want || d.Reason == "" || d.Message == "" {
				t.Errorf("got %+v, want %v", d, c.want)
			}
			if c.attested.Checked() != nil && c.want == csr.VerdictApprove {
				return // TestAttestedDecisionIsForItsObject
			}
			checkPlace(t, d.For(&csr.Request{}), &csr.Request{})
		})
	}
}

// TestAttestedDecisionIsForItsObject: a verified request approves no other object, not even one
// that was made again under the same name.
func TestAttestedDecisionIsForItsObject(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.request.Metadata.UID = "this"
	d := goodVerified(f.mustCheck(t)).Decision()
	for uid, want := range map[string]csr.Verdict{"this": csr.VerdictApprove, "another": csr.VerdictRetry, "": csr.VerdictRetry} {
		t.Run(uid, func(t *testing.T) {
			r := *f.request
			r.Metadata.UID, r.Metadata.ResourceVersion = uid, "8"
			got := d.For(&r)
			if got.Verdict != want || got.UID != uid || got.ResourceVersion != "8" {
				t.Errorf("got %+v, want %v", got, want)
			}
			checkPlace(t, got, &r)
		})
	}
}

func throughProvider(t *testing.T) *csr.Attested {
	t.Helper()
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	a, err := csr.Verify(t.Context(), &fakeProvider{policy: f.policy}, f.request)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func inherited(t *testing.T) *csr.Attested {
	t.Helper()
	f, _ := inheritingFixture()
	a, err := inherit(t, f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func insecureAttested(t *testing.T) *csr.Attested {
	t.Helper()
	f, p := insecureFixture(t)
	f.encode(t)
	a, err := p.VerifyClientAttestationData(t.Context(), f.request.Parsed())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAttestedSays: an Attested returns its grant, and Verify adds a name.
func TestAttestedSays(t *testing.T) {
	checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
	details := new(int)
	a := checked.Vouch(goodIdentity, csr.Grant{ProviderID: goodProviderID}, details)
	if a.Checked() != checked || a.Machine() != goodIdentity || a.Details() != details || a.Grant().ProviderID != goodProviderID || a.MachineName() != "" {
		t.Errorf("got %+v", a)
	}
	if a := throughProvider(t); a.Machine() != goodIdentity || a.MachineName() != "machine-1" {
		t.Errorf("from a provider: got %+v", a)
	}
}

// TestVouchSharesNothing: neither the arguments of Vouch nor the result of Grant change the grant that
// is vouched for.
func TestVouchSharesNothing(t *testing.T) {
	checked := goodFixture(csr.SignerServingTPM, csr.RequesterNode).mustCheck(t)
	names, addresses := []string{goodNode}, []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	a := checked.Vouch(goodIdentity, csr.Grant{DNSNames: names, IPAddresses: addresses}, nil)
	unchanged := func(who string) {
		t.Helper()
		if g := a.Grant(); !slices.Equal(g.DNSNames, []string{goodNode}) || !slices.Equal(g.IPAddresses, []netip.Addr{netip.MustParseAddr("192.0.2.7")}) || g.ProviderID != "" {
			t.Errorf("%s: vouches for %+v", who, g)
		}
	}
	names[0], addresses[0] = "other.example", netip.Addr{}
	unchanged("what was given")
	got := a.Grant()
	got.DNSNames[0], got.IPAddresses[0], got.ProviderID = "other.example", netip.Addr{}, "x://y"
	unchanged("what was returned")
	got = a.Until(issueTime.Add(time.Hour)).Grant()
	got.DNSNames[0] = "other.example"
	unchanged("what was narrowed")
}

func TestUntilNarrows(t *testing.T) {
	checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
	half, whole := issueTime.Add(30*time.Minute), issueTime.Add(time.Hour)
	for name, c := range map[string]struct{ granted, until, want time.Time }{
		"no bound":               {time.Time{}, half, half},
		"no bound, zero":         {time.Time{}, time.Time{}, time.Time{}},
		"earlier":                {whole, half, half},
		"earlier by the least":   {whole, whole.Add(-1), whole.Add(-1)},
		"the same":               {whole, whole, whole},
		"later by the least":     {half, half.Add(1), half},
		"later":                  {half, whole, half},
		"zero removes no bound":  {half, time.Time{}, half},
		"long before":            {half, time.Unix(0, 0), time.Unix(0, 0)},
		"the year 9999 is later": {half, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), half},
	} {
		t.Run(name, func(t *testing.T) {
			a := checked.Vouch(goodIdentity, csr.Grant{NotAfter: c.granted}, nil)
			if got := a.Until(c.until).Grant().NotAfter; !got.Equal(c.want) {
				t.Errorf("ends at %v, want %v", got, c.want)
			}
			if got := a.Grant().NotAfter; !got.Equal(c.granted) {
				t.Errorf("the first one now ends at %v", got)
			}
		})
	}
	// A narrowed Attested keeps all else, and is issued.
	narrowed := throughProvider(t).Until(half)
	if narrowed.Machine() != goodIdentity || narrowed.MachineName() != "machine-1" || narrowed.Grant().ProviderID != goodProviderID {
		t.Errorf("got %+v", narrowed)
	}
	if c := mustIssue(t, newCA(t, goodOptions()), narrowed.Until(whole)).Certificate; !c.NotAfter.Equal(half.Truncate(time.Second)) {
		t.Errorf("the certificate ends at %v", c.NotAfter)
	}
	if _, err := newCA(t, goodOptions()).Issue(t.Context(), (*csr.Attested)(nil).Until(half)); !errors.Is(err, csr.CheckNotChecked) {
		t.Errorf("nothing, narrowed: %v", err)
	}
}

// TestIssueAge: an answer lives for an hour, by the clocks of policy and CA.
func TestIssueAge(t *testing.T) {
	for age, ok := range map[time.Duration]bool{
		0: true, 59*time.Minute + 59*time.Second: true, time.Hour: true, time.Hour + 1: false, 30 * 24 * time.Hour: false,
		-time.Minute: true, -time.Hour: true, -time.Hour - 1: false, -30 * 24 * time.Hour: false, // a clock that went back
	} {
		t.Run(age.String(), func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.policy.Now = func() time.Time { return issueTime.Add(-age) }
			attested := goodVerified(f.mustCheck(t))
			issued, err := newCA(t, goodOptions()).Issue(t.Context(), attested)
			if ok != (err == nil) || ok != (issued != nil) {
				t.Errorf("got %v", err)
			}
			if err != nil && (!errors.Is(err, refusal.ErrRetry) || csr.Decide(err).Verdict != csr.VerdictRetry || !strings.Contains(err.Error(), "verify it again")) {
				t.Errorf("got %v", err)
			}
		})
	}
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.policy.Now = func() time.Time { return time.Time{} }
	if _, err := newCA(t, goodOptions()).Issue(t.Context(), goodVerified(f.mustCheck(t))); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a zero clock: %v", err)
	}
	// No clock is time.Now.
	f.policy.Now = nil
	template, opts := caTemplate("CA"), goodOptions()
	template.NotBefore, opts.Now = time.Unix(0, 0), nil
	ca, err := csr.NewCA([]*x509.Certificate{makeCA(t, template, p256Key(), nil, nil)}, p256Key(), opts)
	if err != nil {
		t.Fatal(err)
	}
	mustIssue(t, ca, goodVerified(f.mustCheck(t)))
}

// TestDecisionAge: an approval too is of a check within the hour.
func TestDecisionAge(t *testing.T) {
	for age, want := range map[time.Duration]csr.Verdict{
		0: csr.VerdictApprove, 59*time.Minute + 59*time.Second: csr.VerdictApprove, time.Hour: csr.VerdictApprove,
		time.Hour + 1: csr.VerdictRetry, 30 * 24 * time.Hour: csr.VerdictRetry, -time.Hour: csr.VerdictApprove, -time.Hour - 1: csr.VerdictRetry,
	} {
		t.Run(age.String(), func(t *testing.T) {
			f, now := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap), issueTime
			f.policy.Now = func() time.Time { return now }
			attested := goodVerified(f.mustCheck(t))
			now = issueTime.Add(age)
			if d := attested.Decision(); d.Verdict != want || want == csr.VerdictRetry && !strings.Contains(d.Message, "verify it again") {
				t.Errorf("got %+v, want %v", d, want)
			}
		})
	}
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.policy.Now = nil
	if d := goodVerified(f.mustCheck(t)).Decision(); d.Verdict != csr.VerdictApprove {
		t.Errorf("no clock: got %+v", d)
	}
}

// TestIssueCluster: a request that was checked for one cluster gets no certificate of another.
func TestIssueCluster(t *testing.T) {
	for name, c := range map[string]struct {
		policy, ca []string
		ok         bool
	}{
		"the same":                     {[]string{goodCluster}, []string{goodCluster}, true},
		"both being rotated":           {[]string{"old", goodCluster}, []string{goodCluster, "old"}, true},
		"the CA being rotated":         {[]string{goodCluster}, []string{"old", goodCluster}, true},
		"another":                      {[]string{"cluster-b"}, []string{goodCluster}, false},
		"two clusters, one verifier":   {[]string{goodCluster, "cluster-b"}, []string{goodCluster}, false},
		"the same in another spelling": {[]string{"Cluster-a"}, []string{goodCluster}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, opts := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap), goodOptions()
			f.policy.ClusterIDs, opts.ClusterIDs = c.policy, c.ca
			checked := f.mustCheck(t)
			if !slices.Equal(checked.ClusterIDs(), c.policy) {
				t.Errorf("checked for %q", checked.ClusterIDs())
			}
			checked.ClusterIDs()[0] = goodCluster // a copy
			_, err := newCA(t, opts).Issue(t.Context(), goodVerified(checked))
			if c.ok != (err == nil) {
				t.Errorf("got %v", err)
			}
			if !c.ok && (!slices.Equal(brokenRules(err), rules("verified-cluster")) || csr.Decide(err).Verdict != csr.VerdictDeny ||
				!strings.Contains(err.Error(), c.policy[0]) || !strings.Contains(err.Error(), goodCluster)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// swapKey puts another key into a request that was read.
func swapKey(t *testing.T, request *x509.CertificateRequest) {
	t.Helper()
	var err error
	if request.RawSubjectPublicKeyInfo, err = x509.MarshalPKIXPublicKey(p384Key().Public()); err != nil {
		t.Fatal(err)
	}
	request.PublicKey, request.DNSNames = p384Key().Public(), []string{"other.example"}
}

// TestCheckedGivesCopies: changes of the values that a Checked returns do not reach the certificate.
func TestCheckedGivesCopies(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	f.builder.extensions = append(f.builder.extensions, providerIDExtension(t, goodProviderID))
	f.encode(t)
	all := f.request.Parsed()
	checked, err := f.policy.Check(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256(checked.PKCS10().CSR.RawSubjectPublicKeyInfo)

	request := checked.PKCS10()
	request.ProviderID, request.Raw, request.InfoHash = "", nil, [32]byte{}
	swapKey(t, request.CSR)
	machine := checked.Machine()
	machine.Name, machine.NodeName, machine.ProviderID, machine.UID = "other", "other", "", "other"
	machine.DNSNames[0], machine.IPAddresses[0] = "other.example", netip.Addr{}
	checked.DNSNames()[0], checked.IPAddresses()[0] = "other.example", netip.Addr{}
	parsed, err := all.PKCS10()
	if err != nil {
		t.Fatal(err)
	}
	parsed.ProviderID = ""
	swapKey(t, parsed.CSR)
	f.machine.Name, f.machine.ProviderID, f.machine.UID = "later", "test://later", "later" // the inventory's own

	if m := checked.Machine(); m.Name != "machine-1" || m.NodeName != goodNode || m.ProviderID != goodProviderID || m.UID != goodMachineUID ||
		m.DNSNames[0] != goodNode || m.IPAddresses[0] != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("the machine is now %+v", m)
	}
	if f.machine.NodeName != goodNode || f.machine.DNSNames[0] != goodNode || !f.machine.IPAddresses[0].IsValid() {
		t.Errorf("the inventory is now %+v", f.machine)
	}
	if name, err := goodVerified(checked).InventoryName(); name != "machine-1" || err != nil {
		t.Errorf("name %q, %v", name, err)
	}
	if claimed := checked.ClaimedProviderID().Unproven(); claimed != goodProviderID {
		t.Errorf("claims %q", claimed)
	}
	ca := newCA(t, goodOptions())
	if _, err := ca.Issue(t.Context(), verifiedWith(checked, func(g *csr.Grant) { g.ProviderID = "" })); !slices.Equal(brokenRules(err), rules(csr.CheckProviderIDNotVouched)) {
		t.Errorf("a claim that is not vouched for: %v", err)
	}
	issued := mustIssue(t, ca, goodVerified(checked))
	if issued.Record.SPKIHash != key || issued.Record.MachineUID != goodMachineUID || !slices.Equal(issued.Certificate.DNSNames, []string{goodNode}) {
		t.Errorf("issued %+v for %q", issued.Record, issued.Certificate.DNSNames)
	}
	if id, err := oid.ParseProviderID(issued.Certificate.Extensions); id != goodProviderID || err != nil {
		t.Errorf("provider ID %q, %v", id, err)
	}
	if new(csr.Checked).Machine() != nil || new(csr.Checked).PKCS10().CSR != nil {
		t.Error("a Checked that no policy made has something")
	}
}

// TestInsecureProviderKeepsItsPolicy: later changes in the policy that it was made
// from opens no other signer.
func TestInsecureProviderKeepsItsPolicy(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.policy.SignerNames = []string{csr.SignerClientInsecure}
	p, err := csr.NewInsecureProvider(f.policy)
	if err != nil {
		t.Fatal(err)
	}
	f.encode(t)
	for name, change := range map[string]func(){
		"another list":     func() { f.policy.SignerNames = []string{csr.SignerClientTPM} },
		"in the same list": func() { f.policy.SignerNames[0] = csr.SignerClientTPM },
	} {
		t.Run(name, func(t *testing.T) {
			f.policy.SignerNames = []string{csr.SignerClientInsecure}
			if p, err = csr.NewInsecureProvider(f.policy); err != nil {
				t.Fatal(err)
			}
			change()
			if _, err := f.policy.Check(t.Context(), f.request.Parsed()); err != nil {
				t.Fatalf("the changed policy itself: %v", err)
			}
			a, err := p.VerifyClientAttestationData(t.Context(), f.request.Parsed())
			if a != nil || !errors.Is(err, csr.ErrOtherSigner) {
				t.Errorf("vouches for %v under the TPM's signer: %v", a, err)
			}
		})
	}
}

// TestQuestion: an inventory is told the cluster, the node and the request.
func TestQuestion(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.policy.ClusterIDs = []string{"old", goodCluster}
	var asked []csr.Question
	machines := f.policy.Machines
	f.policy.Machines = func(ctx context.Context, q csr.Question) (*csr.Machine, error) {
		asked = append(asked, q)
		return machines(ctx, q)
	}
	f.mustCheck(t)
	if len(asked) != 1 || asked[0].NodeName != goodNode || asked[0].Request != f.request || !slices.Equal(asked[0].ClusterIDs, []string{"old", goodCluster}) {
		t.Errorf("asked %+v", asked)
	}
}
