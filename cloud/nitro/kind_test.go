package nitro

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"reflect"
	"strings"
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

// machine is an instance of a world.
func machine(name string) cloudtest.NitroMachine {
	return cloudtest.NitroMachine{InstanceID: "i-0123456789abcdef" + name[len(name)-1:], Region: "us-east-2"}
}

// sources are the instances of a platform whose clock can be set.
func sources(t testing.TB, platform *cloudtest.Nitro) func(string, time.Time) document.Source {
	return func(name string, at time.Time) document.Source {
		stopped := *platform
		if stopped.Now = func() time.Time { return at }; at.IsZero() {
			stopped.Now = nil
		}
		return testkit.Must(NewSource(SourceConfig{Ask: stopped.Asker(machine(name))}))
	}
}

func platformVerifier(t testing.TB, platforms ...*cloudtest.Nitro) *Verifier {
	t.Helper()
	var c VerifierConfig
	for _, p := range platforms {
		c.Roots = append(c.Roots, p.Root())
	}
	return testkit.Must(NewVerifier(c))
}

// TestConformance: the kind lets honest machines in and no attack, and one that forgets a
// check lets in the attacks on it, and no others.
func TestConformance(t *testing.T) {
	ours, theirs := cloudtest.NewNitro(t), cloudtest.NewNitro(t)
	strict := &platform{verifier: platformVerifier(t, ours)}
	claimed := attest.Identity("aws:aws/us-east-2/i-0123456789abcdef1")
	for name, c := range map[string]struct {
		platform document.Platform
		want     []string
	}{
		"as it is":  {strict, nil},
		"with PCRs": {&platform{strict.verifier, []map[int][]byte{{4: make([]byte, 48)}}}, nil},
		"nothing verified": {&kindtest.WeakPlatform{Platform: strict, Instead: func(data []byte, q *attest.Inquiry) (*document.Claims, error) {
			return strict.Read(data)
		}}, []string{"evidence-byte-changed", "evidence-last-byte-changed", "document-forged", "document-of-yesterday", "document-of-tomorrow",
			"document-value-replaced", "document-bytes-not-covered", "document-identity-replaced", "budget-spent"}},
		"every root trusted": {&platform{verifier: platformVerifier(t, ours, theirs)}, []string{"document-forged"}},
		"time of the document": {&kindtest.WeakPlatform{Platform: strict, Instead: func(data []byte, q *attest.Inquiry) (*document.Claims, error) {
			d, err := parseInsecure(data)
			if err != nil {
				return nil, err
			}
			return strict.Verify(context.Background(), data, &attest.Inquiry{Now: d.Timestamp, Budget: q.Budget})
		}}, []string{"document-of-yesterday", "document-of-tomorrow"}},
		"machine not looked at": {&kindtest.WeakPlatform{Platform: strict, Find: func(c *document.Claims) { c.Machine = claimed }}, // always machine-1
			[]string{"honest-second-machine", "document-of-another-machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := testkit.Must(document.NewKind(document.KindConfig{Provider: Provider, Identities: []attest.Grammar{{Kind: identityKind}}, ValueSize: 32, Platform: c.platform}))
			kindtest.Conformance(t, &attesttest.Documents{Kind: kind, Source: sources(t, ours), Attacker: sources(t, theirs)}, c.want)
		})
	}
}

// TestClaims: a document's contents become the claims that the join compares, and a document
// of another kind is refused when it is read.
func TestClaims(t *testing.T) {
	b := newBench()
	good := []map[int][]byte{{4: pcr(5)}, {4: pcr(4), 7: pcr(7), 12: pcr(12)}}
	for name, c := range map[string]struct {
		change func(*parts)
		good   []map[int][]byte
		want   refusal.Check
	}{
		"good":                      {nil, nil, ""},
		"with good PCRs":            {nil, good, ""},
		"no nonce":                  {func(p *parts) { p.drop("nonce") }, nil, checkNonce},
		"a nonce that is null":      {func(p *parts) { p.set("nonce", []byte{0xf6}) }, nil, checkNonce},
		"a nonce of 31 bytes":       {func(p *parts) { p.set("nonce", bstr(testNonce[:31])) }, nil, checkNonce},
		"a nonce of 33 bytes":       {func(p *parts) { p.set("nonce", bstr(append(testNonce[:32:32], 0))) }, nil, checkNonce},
		"no user data":              {func(p *parts) { p.set("user_data", []byte{0xf6}) }, nil, checkUserData},
		"other user data":           {func(p *parts) { p.set("user_data", bstr([]byte("nodeattest/nitro/v2"))) }, nil, checkUserData},
		"longer user data":          {func(p *parts) { p.set("user_data", bstr([]byte(userData+" "))) }, nil, checkUserData},
		"a public key":              {func(p *parts) { p.set("public_key", bstr([]byte{4})) }, nil, checkUserData},
		"an empty public key":       {func(p *parts) { p.set("public_key", bstr(nil)) }, nil, checkUserData},
		"a PCR of another value":    {nil, good[:1], checkPCRs},
		"a PCR that is not there":   {func(p *parts) { p.set("nitrotpm_pcrs", pcrs(12)) }, good, checkPCRs},
		"a PCR of zeros, not there": {func(p *parts) { p.set("nitrotpm_pcrs", pcrs(12)) }, []map[int][]byte{{12: make([]byte, 48)}}, checkPCRs},
		"half of each set":          {func(p *parts) { p.set("nitrotpm_pcrs", pcrs(12)) }, []map[int][]byte{{4: pcr(4), 12: pcr(12)}, {7: pcr(7), 8: pcr(9)}}, checkPCRs},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewKind(KindConfig{Verifier: b.verifier(t), GoodPCRs: c.good}); err != nil {
				t.Fatal(err)
			}
			p := b.good()
			if c.change != nil {
				c.change(p)
			}
			data, kind := p.marshal(), &platform{b.verifier(t), c.good}
			_, err1 := kind.Read(data)
			claims, err2 := kind.Verify(context.Background(), data, &attest.Inquiry{Now: testTime, Budget: attest.NewBudget(5)})
			if c.want != "" {
				if !errors.Is(err1, c.want) || !errors.Is(err2, c.want) {
					t.Errorf("read: %v, verified: %v, want %s", err1, err2, c.want)
				}
				return
			}
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if claims.Machine != "aws:aws/us-east-2/i-0123456789abcdef0" || !bytes.Equal(claims.Value, testNonce) || len(claims.Facts) != 4 {
				t.Errorf("got %+v", claims)
			}
			if d, ok := claims.Details.(*Document); !ok || len(d.Chain) != 5 {
				t.Errorf("details %v", claims.Details)
			}
		})
	}
}

// A verification counts its signatures before it checks them, and a fault that is found without one
// costs none.
func TestBudget(t *testing.T) {
	b := newBench()
	v, data := b.verifier(t), b.good().marshal()
	for n := range 6 {
		budget := attest.NewBudget(n)
		_, err := v.verify(context.Background(), data, testTime, budget)
		if n < 5 && !errors.Is(err, attest.CheckBudget) || n == 5 && (err != nil || budget.Signatures() != 5) {
			t.Errorf("%d signatures: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := v.Verify(ctx, data, testTime); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a context that has ended: %v", err)
	}
	for _, a := range attacks() {
		budget := attest.NewBudget(10)
		_, err := v.verify(context.Background(), a.forged(b), testTime, budget)
		if err == nil || a.want != checkSignature && a.want != chain.CheckChain && budget.Signatures() != 0 {
			t.Errorf("%s: %v, after %d signatures", a.name, err, budget.Signatures())
		}
	}
}

func TestIdentity(t *testing.T) {
	for region, want := range map[string]attest.Identity{
		"us-east-2": "aws:aws/us-east-2/" + testInstance, "cn-north-1": "aws:aws-cn/cn-north-1/" + testInstance, "us-gov-west-1": "aws:aws-us-gov/us-gov-west-1/" + testInstance,
		"us-iso-east-1": "aws:aws-iso/us-iso-east-1/" + testInstance, "us-isob-east-1": "aws:aws-iso-b/us-isob-east-1/" + testInstance,
	} {
		t.Run(region, func(t *testing.T) {
			if id, err := Identity(region, testInstance); err != nil || id != want {
				t.Errorf("got %s, %v", id, err)
			}
		})
	}
	if _, err := Identity("us-east-2", "i-01234567"); err != nil {
		t.Errorf("an old instance: %v", err)
	}
	for _, c := range [][2]string{{"", testInstance}, {"-us", testInstance}, {"us-", testInstance}, {"us/east", testInstance}, {"US-EAST-2", testInstance}, {strings.Repeat("a", 33), testInstance},
		{"us-east-2", ""}, {"us-east-2", testInstance[2:]}, {"us-east-2", testInstance + "0"}, {"us-east-2", strings.ToUpper(testInstance)}, {"us-east-2", "i-012345678"}} {
		if _, err := Identity(c[0], c[1]); !errors.Is(err, attest.CheckIdentity) {
			t.Errorf("%q: %v", c, err)
		}
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]VerifierConfig{"no roots": {}, "a nil root": {Roots: []*x509.Certificate{nil}}, "a leaf": {Roots: []*x509.Certificate{newBench().root.Certificate, newBench().leaf.Certificate}}} {
		if _, err := NewVerifier(c); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	v := newBench().verifier(t)
	for name, c := range map[string]KindConfig{
		"no verifier":   {},
		"no sets":       {Verifier: v, GoodPCRs: []map[int][]byte{}},
		"an empty set":  {Verifier: v, GoodPCRs: []map[int][]byte{{}}},
		"a nil set":     {Verifier: v, GoodPCRs: []map[int][]byte{{4: pcr(4)}, nil}},
		"PCR 16":        {Verifier: v, GoodPCRs: []map[int][]byte{{16: pcr(0)}}},
		"PCR 23":        {Verifier: v, GoodPCRs: []map[int][]byte{{23: pcr(0)}}},
		"PCR 32":        {Verifier: v, GoodPCRs: []map[int][]byte{{32: pcr(0)}}},
		"PCR -1":        {Verifier: v, GoodPCRs: []map[int][]byte{{-1: pcr(0)}}},
		"no value":      {Verifier: v, GoodPCRs: []map[int][]byte{{4: nil}}},
		"a short value": {Verifier: v, GoodPCRs: []map[int][]byte{{4: make([]byte, 32)}}},
		"zeros":         {Verifier: v, GoodPCRs: []map[int][]byte{{7: make([]byte, 48)}}},
		"ones":          {Verifier: v, GoodPCRs: []map[int][]byte{{0: bytes.Repeat([]byte{0xff}, 48)}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewKind(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	_, err := NewSource(SourceConfig{})
	if _, again := NewProver(SourceConfig{}); !errors.Is(err, refusal.CheckConfig) || !reflect.DeepEqual(again, err) {
		t.Errorf("no Ask: %v and %v", err, again)
	}
}
