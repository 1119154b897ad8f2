package azure

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// machines are the machines of a world, in a cloud whose clock can be set.
type machines struct {
	t       testing.TB
	cloud   *cloudtest.Azure
	mu      sync.Mutex
	sources map[string]document.Source
}

// machine has letters of both cases, as inventories have them.
func machine(name string) cloudtest.AzureMachine {
	return cloudtest.AzureMachine{SubscriptionID: strings.ToUpper(testSubscription), VMID: "B1310A36-D400-46F6-82CB-6217DF84658" + name[len(name)-1:]}
}

// source is that of a machine at a time, which asks a metadata server.
func (m *machines) source(name string, at time.Time) document.Source {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := fmt.Sprint(name, at.Unix())
	if s := m.sources[key]; s != nil {
		return s
	}
	stopped := *m.cloud
	stopped.Now = func() time.Time { return at }
	server := stopped.Serve(machine(name))
	m.t.Cleanup(server.Close)
	s, err := NewSource(SourceOptions{URL: server.URL})
	if err != nil {
		m.t.Fatal(err)
	}
	m.sources[key] = s
	return s
}

func newMachines(t testing.TB) *machines {
	return &machines{t: t, cloud: cloudtest.NewAzure(t, cloudtest.AzureOptions{}), sources: map[string]document.Source{}}
}

func cloudVerifier(t testing.TB, cloud *cloudtest.Azure) *Verifier {
	return newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{cloud.Root()}, Intermediates: []*x509.Certificate{cloud.Intermediate()}})
}

// TestConformance: the kind lets honest machines in and no attack, and one that forgets a
// check lets in the attacks on it, and no others.
func TestConformance(t *testing.T) {
	ours, theirs := newMachines(t), newMachines(t)
	verifier := cloudVerifier(t, ours.cloud)
	untrusting := cloudVerifier(t, ours.cloud) // trusts every cloud's roots
	untrusting.roots = chain.NewPool([]*x509.Certificate{ours.cloud.Root(), theirs.cloud.Root()})
	untrusting.intermediates = chain.NewPool([]*x509.Certificate{ours.cloud.Intermediate(), theirs.cloud.Intermediate()})
	strict := &platform{verifier, []string{testSubscription}}
	claimed := attest.Identity("azure:" + testSubscription + "/b1310a36-d400-46f6-82cb-6217df846581")
	for name, c := range map[string]struct {
		platform document.Platform
		want     []string
	}{
		"as it is": {strict, nil},
		"nothing verified": {&kindtest.WeakPlatform{Platform: strict, Instead: func(data []byte, q *attest.Inquiry) (*document.Claims, error) {
			return strict.Read(data)
		}}, []string{"evidence-byte-changed", "evidence-last-byte-changed", "document-forged", "document-of-yesterday", "document-of-tomorrow",
			"document-value-replaced", "document-bytes-not-covered", "document-identity-replaced", "budget-spent"}},
		"every root trusted": {&platform{untrusting, []string{testSubscription}}, []string{"document-forged"}},
		"time of the document": {&kindtest.WeakPlatform{Platform: strict, Instead: func(data []byte, q *attest.Inquiry) (*document.Claims, error) {
			d, err := parseInsecure(data)
			if err != nil {
				return nil, err
			}
			return strict.Verify(context.Background(), data, &attest.Inquiry{Now: d.CreatedOn, Budget: q.Budget})
		}}, []string{"document-of-yesterday", "document-of-tomorrow"}},
		"machine not looked at": {&kindtest.WeakPlatform{Platform: strict, Find: func(c *document.Claims) { c.Machine = claimed }}, // always machine-1
			[]string{"honest-second-machine", "document-of-another-machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := testkit.Must(document.NewKind(document.KindConfig{Provider: Provider, Identities: []attest.Grammar{{Kind: identityKind}}, ValueSize: valueSize, Versions: []int{formatVersion}, Platform: c.platform}))
			kindtest.Conformance(t, &attesttest.Documents{Kind: kind, Source: ours.source, Attacker: theirs.source}, c.want)
		})
	}
}

// TestClaims: a document's contents become the claims that the join compares.
func TestClaims(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	verifier := cloudVerifier(t, cloud)
	nonce := nonceOf(make([]byte, 16))
	another := "00000000-0000-0000-0000-000000000001"
	for name, c := range map[string]struct {
		machine       cloudtest.AzureMachine
		subscriptions []string
		nonce         string
		want          refusal.Check
	}{
		"good":                          {machine("1"), nil, nonce, ""},
		"of a subscription":             {machine("1"), []string{another, strings.ToUpper(testSubscription)}, nonce, ""},
		"of another subscription":       {machine("1"), []string{another}, nonce, checkSubscription},
		"without a nonce":               {machine("1"), nil, "", checkNonce},
		"the largest value":             {machine("1"), nil, nonceOf(bytes.Repeat([]byte{0xff}, 16)), ""},
		"a value of 129 bits":           {machine("1"), nil, label + "7N42dgm5tFLK9N8MT7fHC8", checkNonce},
		"a nonce of version 1":          {machine("1"), nil, strings.Repeat("0", 32), checkNonce},
		"a label in upper case":         {machine("1"), nil, strings.ToUpper(label) + nonce[len(label):], checkNonce},
		"a label alone":                 {machine("1"), nil, label, checkNonce},
		"a short nonce":                 {machine("1"), nil, nonce[:31], checkNonce},
		"a negative value":              {machine("1"), nil, label + "-" + nonce[len(label)+1:], checkNonce},
		"a value with a plus":           {machine("1"), nil, label + "+" + nonce[len(label)+1:], checkNonce},
		"a value with a line below":     {machine("1"), nil, label + "0_" + nonce[len(label)+2:], checkNonce},
		"no subscription":               {cloudtest.AzureMachine{VMID: testVM}, nil, nonce, attest.CheckIdentity},
		"no machine":                    {cloudtest.AzureMachine{SubscriptionID: testSubscription}, nil, nonce, attest.CheckIdentity},
		"a machine that is no UUID":     {cloudtest.AzureMachine{SubscriptionID: testSubscription, VMID: "some-vm"}, nil, nonce, attest.CheckIdentity},
		"a machine with another hyphen": {cloudtest.AzureMachine{SubscriptionID: testSubscription, VMID: strings.Replace(testVM, "-", "_", 1)}, nil, nonce, attest.CheckIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			data := testkit.Must(cloud.Document(c.machine, c.nonce))
			if c.subscriptions == nil {
				c.subscriptions = []string{testSubscription, another}
			}
			kind := &platform{verifier: verifier}
			if _, err := NewKind(KindConfig{Verifier: verifier, Subscriptions: c.subscriptions}); err != nil {
				t.Fatal(err)
			}
			for _, s := range c.subscriptions {
				kind.subscriptions = append(kind.subscriptions, strings.ToLower(s))
			}
			_, err1 := kind.Read(data)
			claims, err2 := kind.Verify(context.Background(), data, &attest.Inquiry{Now: time.Now(), Budget: attest.NewBudget(4)})
			if c.want != "" {
				if !errors.Is(err1, c.want) || !errors.Is(err2, c.want) {
					t.Errorf("read: %v, verified: %v, want %s", err1, err2, c.want)
				}
				return
			}
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if claims.Machine != "azure:8a205152-b25a-417f-a676-80465535a6c9/b1310a36-d400-46f6-82cb-6217df846581" || len(claims.Value) != 16 || len(claims.Facts) != 2 {
				t.Errorf("got %+v", claims)
			}
			if d, ok := claims.Details.(*Document); !ok || d.Name == "" {
				t.Errorf("details %v", claims.Details)
			}
		})
	}
}

// A verification counts its signatures before it checks them.
func TestBudget(t *testing.T) {
	b := testBench(t)
	v, der := newVerifier(t, b.config()), testkit.Must(b.good().marshal())
	for n := range 5 {
		budget := attest.NewBudget(n)
		_, err := v.verify(context.Background(), der, testTime, budget)
		if n < 4 && !errors.Is(err, attest.CheckBudget) || n == 4 && (err != nil || budget.Signatures() != 4) {
			t.Errorf("%d signatures: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := v.Verify(ctx, der, testTime); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a context that has ended: %v", err)
	}
	// The error is that of the first chain, and not of another one.
	template := caTemplate(b.root.Certificate.Subject.CommonName, testTime.Add(-year), testTime.Add(-time.Hour))
	ended := testkit.Must(issue(template, b.root.Key, nil))
	config := b.config()
	config.Roots = append([]*x509.Certificate{ended.Certificate}, config.Roots...)
	v = newVerifier(t, config)
	if _, err := v.Verify(context.Background(), der, testTime); err != nil {
		t.Errorf("with an expired root too: %v", err)
	}
	if _, err := v.Verify(ctx, der, testTime); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("with an expired root too, in a context that has ended: %v", err)
	}
	if _, err := v.verify(context.Background(), der, testTime, attest.NewBudget(2)); !errors.Is(err, attest.CheckBudget) {
		t.Errorf("with an expired root too, and too few signatures: %v", err)
	}
	for _, a := range attacks() {
		if a.name == "name-of-another" || a.name == "another-root" || a.name == "second-signer" {
			budget := attest.NewBudget(10)
			if _, err := v.verify(context.Background(), a.forged(b), testTime, budget); err == nil || budget.Signatures() != 0 {
				t.Errorf("%s: %v, after %d signatures", a.name, err, budget.Signatures())
			}
		}
	}
}

func TestIdentity(t *testing.T) {
	id, err := Identity(strings.ToUpper(testSubscription), strings.ToUpper(testVM))
	if err != nil || id != "azure:"+testSubscription+"/"+testVM {
		t.Errorf("got %s, %v", id, err)
	}
	for _, c := range [][2]string{{"", testVM}, {testSubscription, ""}, {testSubscription[1:], testVM}, {testSubscription + "0", testVM}, {testSubscription, strings.Replace(testVM, "b", "g", 1)},
		{strings.ReplaceAll(testSubscription, "-", "0"), testVM}} {
		if _, err := Identity(c[0], c[1]); !errors.Is(err, attest.CheckIdentity) {
			t.Errorf("%q: %v", c, err)
		}
	}
}

func TestConfig(t *testing.T) {
	b := testBench(t)
	good := b.config()
	for name, change := range map[string]func(*VerifierConfig){
		"no roots":              func(c *VerifierConfig) { c.Roots = nil },
		"a nil root":            func(c *VerifierConfig) { c.Roots = []*x509.Certificate{nil} },
		"a nil intermediate":    func(c *VerifierConfig) { c.Intermediates = []*x509.Certificate{nil} },
		"a leaf as a root":      func(c *VerifierConfig) { c.Roots = append(slices.Clone(c.Roots), b.leaf.Certificate) },
		"a leaf between":        func(c *VerifierConfig) { c.Intermediates = []*x509.Certificate{b.leaf.Certificate} },
		"no domains":            func(c *VerifierConfig) { c.Domains = []string{} },
		"an empty domain":       func(c *VerifierConfig) { c.Domains = []string{""} },
		"a domain of one label": func(c *VerifierConfig) { c.Domains = []string{"com"} },
		"a domain with a dot":   func(c *VerifierConfig) { c.Domains = []string{".azure.com"} },
		"a domain with a star":  func(c *VerifierConfig) { c.Domains = []string{"*.azure.com"} },
		"a label of nothing":    func(c *VerifierConfig) { c.Domains = []string{"metadata..example.com"} },
		"a label of no DNS":     func(c *VerifierConfig) { c.Domains = []string{"metadata.exa_mple.com"} },
		"customers' names":      func(c *VerifierConfig) { c.Domains = []string{domainPublic, "cloudapp.azure.com"} },
		"all of a cloud":        func(c *VerifierConfig) { c.Domains = []string{"azure.com"} },
		"half the web":          func(c *VerifierConfig) { c.Domains = []string{"metadata.com"} },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			change(&c)
			if _, err := NewVerifier(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	v := newVerifier(t, good)
	for name, c := range map[string]KindConfig{
		"no verifier":                     {},
		"no verifier, but a subscription": {Subscriptions: []string{testSubscription}},
		"no subscriptions":                {Verifier: v},
		"an empty subscription":           {Verifier: v, Subscriptions: []string{testSubscription, ""}},
		"a subscription's name":           {Verifier: v, Subscriptions: []string{"production"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewKind(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	for name, o := range map[string]SourceOptions{"a path": {URL: "http://169.254.169.254/metadata"}, "https": {URL: "https://169.254.169.254"}, "a timeout": {Timeout: -1}} {
		t.Run(name, func(t *testing.T) {
			_, err := NewSource(o)
			if _, again := NewProver(o); !errors.Is(err, refusal.CheckConfig) || !reflect.DeepEqual(again, err) {
				t.Errorf("%s: %v and %v", name, err, again)
			}
		})
	}
}
