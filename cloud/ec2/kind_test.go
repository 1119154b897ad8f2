package ec2

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// machine is an instance of a world.
func machine(name string) cloudtest.EC2Machine {
	return cloudtest.EC2Machine{AccountID: testAccount, Region: testRegion, InstanceID: "i-0123456789abcdef" + name[len(name)-1:], Role: testRole}
}

// sources are the instances of a cloud, each with a metadata server, whose clocks can be set.
func sources(t testing.TB, cloud *cloudtest.EC2) func(string, time.Time) document.Source {
	urls := map[string]string{}
	return func(name string, at time.Time) document.Source {
		if urls[name] == "" {
			server := cloud.Serve(machine(name))
			t.Cleanup(server.Close)
			urls[name] = server.URL
		}
		options := SourceOptions{URL: urls[name]}
		if !at.IsZero() {
			options.Now = func() time.Time { return at }
		}
		return testkit.Must(NewSource(options))
	}
}

// TestConformance: the kind lets honest machines in and no attack, and one that forgets a
// check lets in the attacks on it, and no others. The attacker has a cloud of their own, with
// documents, metadata servers and an STS.
func TestConformance(t *testing.T) {
	ours, theirs := cloudtest.NewEC2(t, testRegion), cloudtest.NewEC2(t, testRegion)
	open := func(trusts, sts *cloudtest.EC2) *platform {
		return testkit.Must(newPlatform(KindConfig{Certificates: trusts.Certificates(), Roles: testRoles, Transport: sts}))
	}
	strict := open(ours, ours)
	claimed := attest.Identity("aws:aws/us-east-2/i-0123456789abcdef1")
	for name, c := range map[string]struct {
		platform document.Platform
		want     []string
	}{
		"as it is":      {strict, nil},
		"another's STS": {open(ours, theirs), []string{"honest-client", "honest-serving", "honest-second-machine", "honest-annotated"}},
		"nothing verified": {&kindtest.WeakPlatform{Platform: strict, Instead: func(data []byte, q *attest.Inquiry) (*document.Claims, error) {
			return strict.Read(data)
		}}, []string{"document-forged", "document-of-yesterday", "document-of-tomorrow", "document-value-replaced", "document-bytes-not-covered", "budget-spent"}},
		// Another machine's document is refused all the same: its session has another name.
		"machine not looked at": {&kindtest.WeakPlatform{Platform: strict, Find: func(c *document.Claims) { c.Machine = claimed }}, // always machine-1
			[]string{"honest-second-machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := testkit.Must(kindOf(c.platform))
			var random []string // the byte in the middle is at a random place
			if c.want != nil {
				random = []string{"evidence-byte-changed"}
			}
			kindtest.Conformance(t, &attesttest.Documents{Kind: kind, Source: sources(t, ours), Attacker: sources(t, theirs)}, c.want, random...)
		})
	}
}

// TestNewKind: an empty list is refused as a mistake.
func TestNewKind(t *testing.T) {
	l := newLab(t)
	for name, c := range map[string]struct {
		change func(*KindConfig)
		want   string
	}{
		"good":                      {func(*KindConfig) {}, ""},
		"a role with a path":        {func(c *KindConfig) { c.Roles = []string{"arn:aws:iam::123456789012:role/nodes/eu/node"} }, ""},
		"of China":                  {func(c *KindConfig) { c.Roles = []string{"arn:aws-cn:iam::123456789012:role/node"} }, ""},
		"no certificates":           {func(c *KindConfig) { c.Certificates = nil }, "Certificates"},
		"no certificate":            {func(c *KindConfig) { c.Certificates[testRegion] = nil }, "Certificates"},
		"a region without endpoint": {func(c *KindConfig) { c.Certificates = l.cloud.Certificates() }, "Certificates"},
		"no roles":                  {func(c *KindConfig) { c.Roles = nil }, "Roles"},
		"an empty role":             {func(c *KindConfig) { c.Roles = []string{""} }, "Roles"},
		"a name":                    {func(c *KindConfig) { c.Roles = []string{"node"} }, "Roles"},
		"all of an account":         {func(c *KindConfig) { c.Roles = []string{"arn:aws:iam::123456789012:role/*"} }, "Roles"},
		"all accounts":              {func(c *KindConfig) { c.Roles = []string{"arn:aws:iam::*:role/node"} }, "Roles"},
		"no account":                {func(c *KindConfig) { c.Roles = []string{"arn:aws:iam:::role/node"} }, "Roles"},
		"a user":                    {func(c *KindConfig) { c.Roles = []string{"arn:aws:iam::123456789012:user/node"} }, "Roles"},
		"a session":                 {func(c *KindConfig) { c.Roles = []string{"arn:aws:sts::123456789012:assumed-role/node/i-1"} }, "Roles"},
		"a line more":               {func(c *KindConfig) { c.Roles = []string{testRoles[0] + "\n"} }, "Roles"},
	} {
		t.Run(name, func(t *testing.T) {
			config := KindConfig{Certificates: l.certificates(), Roles: testRoles}
			c.change(&config)
			kind, err := NewKind(config)
			if (err == nil) != (c.want == "") || (kind != nil) != (err == nil) || err != nil && (!errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestListedTogether: a role counts in its own account and partition only.
func TestListedTogether(t *testing.T) {
	p, err := newPlatform(KindConfig{Certificates: newLab(t).certificates(),
		Roles: []string{"arn:aws:iam::123456789012:role/a", "arn:aws:iam::210987654321:role/b", "arn:aws-cn:iam::123456789012:role/c"}})
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[caller]refusal.Check{
		{"aws", "123456789012", "a", ""}:        "",
		{"aws", "210987654321", "b", ""}:        "",
		{"aws-cn", "123456789012", "c", ""}:     "",
		{"aws", "123456789012", "b", ""}:        checkRole,
		{"aws", "123456789012", "c", ""}:        checkRole,
		{"aws", "210987654321", "a", ""}:        checkRole,
		{"aws", "123456789012", "A", ""}:        checkRole,
		{"aws-cn", "210987654321", "b", ""}:     checkAccount,
		{"aws-us-gov", "123456789012", "a", ""}: checkPartition,
	} {
		if err := p.checkListed(&c); (err == nil) != (want == "") || err != nil && !errors.Is(err, want) {
			t.Errorf("%v: %v, want %q", c, err, want)
		}
	}
}

// TestCallerOfAnotherListedAccount: a role that is listed speaks for the documents of its own account
// and partition only.
func TestCallerOfAnotherListedAccount(t *testing.T) {
	p, err := newPlatform(KindConfig{Certificates: newLab(t).certificates(),
		Roles: []string{"arn:aws:iam::123456789012:role/node", "arn:aws:iam::210987654321:role/node", "arn:aws-cn:iam::123456789012:role/node"}})
	if err != nil {
		t.Fatal(err)
	}
	e := testkit.Must(endpointOf(testRegion))
	d := &awsid.Document{AccountID: testAccount, Region: testRegion, InstanceID: testInstance}
	for c, want := range map[caller]refusal.Check{
		{"aws", "123456789012", "node", testInstance}:    "",
		{"aws", "210987654321", "node", testInstance}:    checkAccount,
		{"aws-cn", "123456789012", "node", testInstance}: checkPartition,
	} {
		if err := p.checkCaller(&c, d, e); (err == nil) != (want == "") || err != nil && !errors.Is(err, want) {
			t.Errorf("%v: %v, want %q", c, err, want)
		}
	}
}

// TestClaims: the evidence's contents become the claims that the join compares.
func TestClaims(t *testing.T) {
	l := newLab(t)
	p, data := l.platform(t, imitation(sessions())), l.good().marshal()
	read, err1 := p.Read(data)
	verified, err2 := p.Verify(t.Context(), data, inquiry(testTime))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if len(read.Facts) != 3 || len(verified.Facts) != 4 || verified.Facts[3].Value != testRole {
		t.Errorf("facts %v, %v", read.Facts, verified.Facts)
	}
	for _, c := range []*document.Claims{read, verified} {
		if d, ok := c.Details.(*awsid.Document); !ok || d.InstanceID != testInstance || c.Machine != "aws:aws/us-east-2/i-0123456789abcdef0" || !bytes.Equal(c.Value, testValue) {
			t.Errorf("got %+v", c)
		}
	}
}

// TestIdentities: a machine has the same name as by its NitroTPM, in all regions, and the
// endpoint of its own partition.
func TestIdentities(t *testing.T) {
	n := 0
	for _, p := range partitions() {
		for region := range strings.FieldsSeq(p.regions) {
			n++
			e := testkit.Must(endpointOf(region))
			id, err := nitro.Identity(region, testInstance)
			if err != nil || string(id) != "aws:"+e.partition+"/"+region+"/"+testInstance {
				t.Errorf("%s: %s, %v", region, id, err)
			}
			if !strings.HasPrefix(e.host, "sts."+region+".amazonaws.") || strings.HasSuffix(e.host, ".cn") != (p.name == "aws-cn") {
				t.Errorf("%s: %s", region, e.host)
			}
		}
	}
	if n != 39 {
		t.Errorf("%d regions", n)
	}
	for _, region := range []string{"", "us-east-2 us-west-2", "us-east-3", "us-iso-east-1", "US-EAST-2", "us-east-2a"} {
		if e, err := endpointOf(region); !errors.Is(err, checkRegion) || e != nil {
			t.Errorf("%q: %v", region, err)
		}
	}
}

// counting counts the questions.
type counting struct {
	http.RoundTripper
	asked int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.asked++
	return c.RoundTripper.RoundTrip(r)
}

// TestBudget: a verification counts its signature and its question before either, and evidence that is
// wrong without them costs none.
func TestBudget(t *testing.T) {
	l := newLab(t)
	sts := &counting{RoundTripper: imitation(sessions())}
	p := l.platform(t, sts)
	asks := []refusal.Check{"", checkRefused, checkSession, checkRole, checkARN}
	for _, a := range attacks() {
		evidence := l.good()
		a.make(evidence)
		q := inquiry(testTime)
		sts.asked = 0
		_, err := p.Verify(t.Context(), evidence.marshal(), q)
		late := slices.Contains(asks, a.want) || a.name == "by-another-account" || a.name == "by-another-partition"
		signatures, _, work := q.Budget.Spent()
		if (sts.asked == 1) != late || sts.asked > 1 || late && (signatures != 1 || work < maxAnswer+(64<<10)) || signatures > 1 {
			t.Errorf("%s: asked %d times, %d signatures, work %d: %v", a.name, sts.asked, signatures, work, err)
		}
	}
	sts.asked = 0
	spent := attest.NewBudget(1)
	for spent.Work(t.Context(), maxAnswer) == nil {
	}
	for name, budget := range map[string]*attest.Budget{"no signature": attest.NewBudget(0), "no work": spent} {
		if _, err := p.Verify(t.Context(), l.good().marshal(), &attest.Inquiry{Now: testTime, Budget: budget}); !errors.Is(err, attest.CheckBudget) || sts.asked != 0 {
			t.Errorf("%s: asked %d times: %v", name, sts.asked, err)
		}
	}
}
