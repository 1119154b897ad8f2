package attest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// A verifier that lacks one thing is refused when it is made.
func TestVerifierConfig(t *testing.T) {
	ring := testkit.Must(NewStaticKeyRing(NewRingKey(ringTime)))
	var signers []string
	for _, name := range []string{"fake", "other"} {
		signer := testkit.Must(csr.PurposeClient.SignerName(name))
		signers = append(signers, signer)
	}
	good := VerifierConfig{
		KeyRing: ring,
		Kinds:   []Kind{&fakeKind{}},
		Policy: &csr.Policy{ClusterIDs: []string{"c"}, SignerNames: signers,
			Machines: func(context.Context, csr.Question) (*csr.Machine, error) { return nil, csr.ErrNoMachine }},
		Authorizer: AuthorizerFunc(func(context.Context, *Result) (*Authorization, error) { return nil, nil }),
	}
	testkit.Must(NewVerifier(good))
	long := strings.Repeat("c", der.MaxClusterIDSize)
	for name, c := range map[string]struct {
		change func(*VerifierConfig)
		ok     bool
	}{
		"no ClusterIDs":               {clusters(nil), false},
		"an empty cluster ID":         {clusters([]string{""}), false},
		"an empty one after another":  {clusters([]string{"c", ""}), false},
		"a cluster ID no UTF-8":       {clusters([]string{"\xff"}), false},
		"the longest cluster ID":      {clusters([]string{"c", long}), true},
		"a longer one":                {clusters([]string{"c", long + "c"}), false},
		"no KeyRing":                  {func(c *VerifierConfig) { c.KeyRing = nil }, false},
		"a zero KeyRing":              {func(c *VerifierConfig) { c.KeyRing = &KeyRing{} }, true},
		"a KeyRing not read yet":      {func(c *VerifierConfig) { c.KeyRing = new(KeyRing) }, true},
		"no kind":                     {func(c *VerifierConfig) { c.Kinds = nil }, false},
		"a nil kind":                  {func(c *VerifierConfig) { c.Kinds = []Kind{nil} }, false},
		"two kinds of one provider":   {func(c *VerifierConfig) { c.Kinds = []Kind{&fakeKind{}, &fakeKind{}} }, false},
		"two kinds":                   {kinds(func(*Description) {}, func(d *Description) { d.Provider = "other" }), true},
		"a kind without a signer":     {kinds(func(d *Description) { d.Provider = "fake-b" }), false},
		"two versions":                {kinds(func(d *Description) { d.Versions = []int{2, 1} }), true},
		"no version":                  {kinds(func(d *Description) { d.Versions = nil }), false},
		"version 0":                   {kinds(func(d *Description) { d.Versions = []int{1, 0} }), false},
		"the newest version":          {kinds(func(d *Description) { d.Versions = []int{999999999} }), true},
		"a newer one":                 {kinds(func(d *Description) { d.Versions = []int{1000000000} }), false},
		"a minimum":                   {minimum("fake", 1), true},
		"a minimum of 0":              {minimum("fake", 0), true},
		"a minimum of -1":             {minimum("fake", -1), false},
		"a minimum that none reaches": {minimum("fake", 2), false},
		"a minimum of no kind":        {minimum("fake-b", 1), false},
		"a minimum of no provider":    {minimum("", 1), false},
		"identities in capitals":      {kinds(func(d *Description) { d.Roads[0].Identities = []Grammar{{Kind: "Fake"}} }), false},
		"identities without a name":   {kinds(func(d *Description) { d.Roads[0].Identities = []Grammar{{Kind: "fake"}, {}} }), false},
		"a kind without a name":       {kinds(func(d *Description) { d.Provider = "" }), false},
		"a kind with a slash":         {kinds(func(d *Description) { d.Provider = "a/b" }), false},
		"a kind called insecure":      {kinds(func(d *Description) { d.Provider = "insecure" }), false},
		"a kind without roads":        {kinds(func(d *Description) { d.Roads = nil }), false},
		"a road twice":                {kinds(func(d *Description) { d.Roads = append(d.Roads, d.Roads[0]) }), false},
		"an unknown road":             {kinds(func(d *Description) { d.Roads[0].Road = 3 }), false},
		"a road below all":            {kinds(func(d *Description) { d.Roads[0].Road = -1 }), false},
		"no identities":               {kinds(func(d *Description) { d.Roads[0].Identities = nil }), false},
		"no standing":                 {kinds(func(d *Description) { d.Roads[0].Machine = "" }), false},
		"a standing of one's own":     {kinds(func(d *Description) { d.Roads[0].Machine = Vouched }), false},
		"a residence of one's own":    {kinds(func(d *Description) { d.Roads[0].Residence = "sworn" }), false},
		"a claimed machine":           {kinds(func(d *Description) { d.Roads[0].Machine = Claimed }), false},
		"a claimed residence":         {kinds(func(d *Description) { d.Roads[0].Residence = Claimed }), true},
		"EKs by a document":           {kinds(func(d *Description) { d.Roads[0].Identities = []Grammar{{Kind: "fake"}, {Kind: "ek"}} }), false},
		"AKs by a document":           {kinds(func(d *Description) { d.Roads[0].Identities = []Grammar{{Kind: "ak"}} }), false},
		"OtherNames by a document":    {kinds(func(d *Description) { d.Roads[0].Identities = []Grammar{{Kind: "othername"}} }), false},
		"EKs by an AK":                {kinds(func(d *Description) { allRoads(d); d.Roads[0].Identities = []Grammar{{Kind: "ek"}} }), false},
		"EKs by an EK":                {kinds(func(d *Description) { allRoads(d); d.Roads[1].Identities = []Grammar{{Kind: "ek"}} }), true},
		"a longer name than EK's":     {kinds(func(d *Description) { d.Roads[0].Identities = []Grammar{{Kind: "ek2"}} }), true},
		"two statements":              {kinds(func(d *Description) { d.Statements = append(d.Statements, Label{Name: "other", Size: 16}) }), true},
		"a statement twice":           {kinds(func(d *Description) { d.Statements = append(d.Statements, Label{Name: "document", Size: 16}) }), false},
		"no statements":               {kinds(func(d *Description) { d.Statements = nil }), false},
		"optional statements alone":   {kinds(func(d *Description) { d.Statements[0].Optional = true }), false},
		"a statement without a name":  {kinds(func(d *Description) { d.Statements[0].Name = "" }), false},
		"the secret as a statement":   {kinds(func(d *Description) { d.Statements[0].Name = "secret" }), false},
		"over 16 bytes":               {kinds(func(d *Description) { d.Statements[0].Size = 16 }), true},
		"over 15 bytes":               {kinds(func(d *Description) { d.Statements[0].Size = 15 }), false},
		"over 33 bytes":               {kinds(func(d *Description) { d.Statements[0].Size = 33 }), false},
		"no Policy":                   {func(c *VerifierConfig) { c.Policy = nil }, false},
		"a zero Policy":               {func(c *VerifierConfig) { c.Policy = &csr.Policy{} }, false},
		"no Authorizer":               {func(c *VerifierConfig) { c.Authorizer = nil }, false},
		"one that never fits":         {func(c *VerifierConfig) { c.Authorizer = &checkedAuthorizer{err: errors.New("never fits")} }, false},
		"one that fits":               {func(c *VerifierConfig) { c.Authorizer = &checkedAuthorizer{} }, true},
		"the longest Window":          {func(c *VerifierConfig) { c.Window = message.MaxWindow }, true},
		"a second longer":             {func(c *VerifierConfig) { c.Window = message.MaxWindow + time.Second }, false},
		"the shortest Window":         {func(c *VerifierConfig) { c.Window = time.Second }, true},
		"a Window below nothing":      {func(c *VerifierConfig) { c.Window = -time.Second }, false},
		"a part of a second":          {func(c *VerifierConfig) { c.Window = time.Millisecond }, false},
		"seconds and a part of one":   {func(c *VerifierConfig) { c.Window = time.Minute + time.Nanosecond }, false},
		"a Window of the default":     {func(c *VerifierConfig) { c.Window = message.DefaultWindow }, true},
		"a policy over quotes":        {func(c *VerifierConfig) { c.RequireTPMResident = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			c.change(&config)
			if v, err := NewVerifier(config); (err == nil) != c.ok || (v != nil) != c.ok || !c.ok && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want accepted: %t", err, c.ok)
			}
		})
	}
	c := good
	c.Policy = nil
	if _, err := NewVerifier(c); err == nil || !strings.Contains(err.Error(), "Policy") {
		t.Errorf("no policy: %v", err)
	}
	v := testkit.Must(NewVerifier(good))
	if _, err := v.Verify(context.Background(), nil); err == nil {
		t.Error("no request: accepted")
	}
	if _, err := v.Challenge(context.Background(), nil); err == nil {
		t.Error("no hello: accepted")
	}
	if _, err := v.Verify(context.Background(), &csr.Request{}); csr.Decide(err).Verdict != csr.VerdictDeny {
		t.Errorf("a zero request: %v", err)
	}
}

// minimum is the oldest version of one provider.
func minimum(provider string, version int) func(*VerifierConfig) {
	return func(c *VerifierConfig) { c.MinimumVersions = map[string]int{provider: version} }
}

// clusters sets the policy's ClusterIDs.
func clusters(ids []string) func(*VerifierConfig) {
	return func(c *VerifierConfig) {
		c.Policy = c.Policy.Clone()
		c.Policy.ClusterIDs = ids
	}
}

// kinds are fake ones with changed descriptions.
func kinds(describe ...func(*Description)) func(*VerifierConfig) {
	return func(c *VerifierConfig) {
		c.Kinds = nil
		for _, f := range describe {
			c.Kinds = append(c.Kinds, &fakeKind{describe: f})
		}
	}
}

// An error names the missing field or argument.
func TestMissingIsNamed(t *testing.T) {
	v, err := NewVerifier(VerifierConfig{KeyRing: new(KeyRing), Policy: &csr.Policy{}})
	if v != nil || !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), "Kinds") {
		t.Errorf("no kinds: got %v, %v", v, err)
	}
	made := new(Verifier)
	if _, err := made.Challenge(t.Context(), nil); !errors.Is(err, errNotMade) {
		t.Errorf("Challenge of no request: got %v", err)
	}
	if _, err := made.Verify(t.Context(), nil); !errors.Is(err, errNotMade) {
		t.Errorf("Verify of no request: got %v", err)
	}
}
