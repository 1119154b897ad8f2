package csr_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// fakeProvider verifies by the policy of a fixture alone, and notes the calls.
type fakeProvider struct {
	policy *csr.Policy
	change func(*csr.Attested) *csr.Attested
	err    error
	asked  []string
	seen   func(*csr.Parsed) // called with the request, if set
}

func (p *fakeProvider) verify(ctx context.Context, r *csr.Parsed, what string) (*csr.Attested, error) {
	p.asked = append(p.asked, what)
	if p.seen != nil {
		p.seen(r)
	}
	if p.err != nil {
		return nil, p.err
	}
	checked, err := p.policy.Check(ctx, r)
	if err != nil {
		return nil, err
	}
	a := goodVerified(checked)
	if p.change != nil {
		a = p.change(a)
	}
	return a, nil
}

func (p *fakeProvider) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r, "client")
}

func (p *fakeProvider) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r, "serving")
}

func (p *fakeProvider) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	p.asked = append(p.asked, "name")
	return a.InventoryName()
}

type lax struct {
	*fakeProvider
	checked *csr.Checked
}

func (l lax) VerifyClientAttestationData(context.Context, *csr.Parsed) (*csr.Attested, error) {
	return goodVerified(l.checked), nil
}

func TestVerify(t *testing.T) {
	for _, c := range []struct {
		signer string
		class  csr.RequesterClass
		want   []string
	}{
		{csr.SignerClientTPM, csr.RequesterBootstrap, []string{"client", "name"}},
		{csr.SignerServingTPM, csr.RequesterNode, []string{"serving", "name"}},
		{csr.SignerRecoveryTPM, csr.RequesterNode, []string{"client", "name"}},
		{csr.SignerKubeAPIServerClientKubelet, csr.RequesterNode, []string{"client", "name"}},
	} {
		t.Run(c.signer, func(t *testing.T) {
			f := goodFixture(c.signer, c.class)
			f.encode(t)
			fake := &fakeProvider{policy: f.policy}
			accepted, err := csr.Verify(t.Context(), fake, f.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, fake.asked); diff != "" {
				t.Error(diff)
			}
			if accepted.MachineName() != "machine-1" || accepted.Checked().NodeName() != goodNode {
				t.Errorf("got %+v", accepted)
			}
		})
	}
}

// What no provider has a method for is the client's, whose policy leaves it to others.
func TestVerifyOfAnotherSigner(t *testing.T) {
	for _, signer := range []string{"example.com/x", csr.SignerChallengeTPM, "cluster.x-k8s.io/kube-apiserver-client-kubelet-aws"} {
		f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
		f.request.Spec.SignerName = signer
		f.encode(t)
		fake := &fakeProvider{policy: f.policy}
		if a, err := csr.Verify(t.Context(), fake, f.request); a != nil || !errors.Is(err, csr.ErrOtherSigner) || !slices.Equal(fake.asked, []string{"client"}) {
			t.Errorf("%s: got %v, asked %q", signer, err, fake.asked)
		}
	}
}

// TestVerifyResult has a provider answer for something else than it was asked.
func TestVerifyResult(t *testing.T) {
	other := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	other.builder.key = p384Key()
	otherAttested := goodVerified(other.mustCheck(t))
	for name, change := range map[string]func(*csr.Attested) *csr.Attested{
		"nothing":         func(*csr.Attested) *csr.Attested { return nil },
		"not checked":     func(*csr.Attested) *csr.Attested { return new(csr.Checked).Vouch("x", csr.Grant{}, nil) },
		"another request": func(*csr.Attested) *csr.Attested { return otherAttested },
		"no machine":      func(a *csr.Attested) *csr.Attested { return a.Checked().Vouch("", a.Grant(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.encode(t)
			fake := &fakeProvider{policy: f.policy, change: change}
			if _, err := csr.Verify(t.Context(), fake, f.request); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("got %v", err)
			}
			if len(fake.asked) != 1 {
				t.Errorf("a machine's name without a verified result: %v", fake.asked)
			}
		})
	}
}

// TestVerifySignature: a provider that forgets the request's own signature is caught.
func TestVerifySignature(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.builder.badSignature = true
	f.encode(t)
	unsigned, err := f.policy.CheckUnsigned(t.Context(), f.request.Parsed(), csr.SignerClientTPM)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := csr.Verify(t.Context(), lax{&fakeProvider{}, unsigned}, f.request); !errors.Is(err, csr.CheckSignature) {
		t.Errorf("got %v", err)
	}
}

func TestVerifyErrors(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	fake := &fakeProvider{policy: f.policy, err: refusal.Retry(errors.New("platform is down"))}
	if _, err := csr.Verify(t.Context(), fake, f.request); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %v", err)
	}
	fake.err = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"done": ctx, "nil": nil} {
		if _, err := csr.Verify(ctx, fake, f.request); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("a context that is %s: %v", name, err)
		}
	}
	if _, err := csr.Verify(t.Context(), fake, nil); !errors.Is(err, csr.CheckNotChecked) {
		t.Errorf("no request: %v", err)
	}
	if _, err := csr.Verify(t.Context(), nil, f.request); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no provider: %v", err)
	}
	f.machine.Name = ""
	if _, err := csr.Verify(t.Context(), fake, f.request); !errors.Is(err, csr.CheckMachineUnknown) {
		t.Errorf("a machine without a name: %v", err)
	}
}

// TestNegotiation is the whole round: a provider's versions, the annotation, and the version that
// both know.
func TestNegotiation(t *testing.T) {
	key, value := (&csr.UnsupportedVersionError{Supported: []string{"tpm/v3", "tpm/v2"}}).Annotation()
	if key != csr.AnnotationVersions || value != "tpm/v3,tpm/v2" {
		t.Errorf("annotation %s: %s", key, value)
	}
	if chosen, err := (&csr.Metadata{Annotations: map[string]string{key: value}}).ChooseVersion([]string{"tpm/v2", "tpm/v3", "tpm/v4"}); err != nil || chosen != "tpm/v3" {
		t.Errorf("chose %q, %v", chosen, err)
	}
}

func TestChooseVersion(t *testing.T) {
	speaks := []string{"tpm/v2", "tpm/v3"}
	for row, c := range []struct{ value, want string }{
		{"tpm/v3,tpm/v2", "tpm/v3"},
		{"tpm/v2", "tpm/v2"},
		{"tpm/v2,tpm/v9,aws/v3", "tpm/v2"},
		{"", ""},
		{"tpm/v1", ""}, // a writer of the annotation cannot make the node go back to v1
		{"aws/v3", ""},
		{"tpm/v3, tpm/v2", ""},
		{"tpm/v3,", ""},
		{"tpm/v03", ""},
		{"insecure/v1", ""},
		{strings.Repeat("tpm/v3,", 200) + "tpm/v3", ""},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			got, err := (&csr.Metadata{Annotations: map[string]string{csr.AnnotationVersions: c.value}}).ChooseVersion(speaks)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%.40q: got %q, %v", c.value, got, err)
			}
			if err != nil && !errors.Is(err, csr.CheckProviderVersion) {
				t.Errorf("%.40q: %v", c.value, err)
			}
		})
	}
	if _, err := new(csr.Metadata).ChooseVersion(speaks); err == nil {
		t.Error("no annotations")
	}
}

func FuzzChooseVersion(f *testing.F) {
	for _, s := range []string{"tpm/v1", "tpm/v2,tpm/v1", ",", "tpm/v", "x/v999999999,tpm/v2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := (&csr.Metadata{Annotations: map[string]string{csr.AnnotationVersions: value}}).ChooseVersion([]string{"tpm/v1", "tpm/v2"})
		if err == nil && !strings.Contains(","+value+",", ","+got+",") || err != nil && got != "" {
			t.Errorf("%q: got %q, %v", value, got, err)
		}
	})
}

// TestAttestedCheckOtherObject has a provider answer with a result that is good, for an
// object that differs from the one in question in a single thing.
func TestAttestedCheckOtherObject(t *testing.T) {
	for name, change := range map[string]func(*csr.Request){
		"signer":    func(r *csr.Request) { r.Spec.SignerName = csr.SignerKubeAPIServerClientKubelet },
		"requester": func(r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "zzz999" },
		"UID":       func(r *csr.Request) { r.Metadata.UID = "another object" },
		"no UID":    func(r *csr.Request) { r.Metadata.UID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.request.Metadata.UID = "this object"
			checked := f.mustCheck(t)
			good := goodVerified(checked)
			if err := good.Check(f.request.Parsed()); err != nil {
				t.Fatalf("the request itself: %v", err)
			}
			other := *f.request
			change(&other)
			if err := good.Check(other.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("its result for the other: got %v, want %v", err, csr.CheckProviderResult)
			}
			// The object is the caller's: what counts is how it was checked.
			change(f.request)
			if err := good.Check(f.request.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("an object that became the other: got %v, want %v", err, csr.CheckProviderResult)
			}
		})
	}
}

// nameless is a provider that verifies and does not know its machine.
type nameless struct{ *fakeProvider }

func (nameless) MachineName(context.Context, *csr.Attested) (string, error) { return "", nil }

func TestVerifyNeedsMachineName(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	provider := nameless{&fakeProvider{policy: f.policy}}
	accepted, err := csr.Verify(t.Context(), provider, f.request)
	if accepted != nil || !errors.Is(err, csr.CheckProviderResult) || csr.Decide(err).Verdict != csr.VerdictDeny {
		t.Errorf("got %+v, %v, want %v", accepted, err, csr.CheckProviderResult)
	}
}

// TestInventoryNameOfNothing: each part of a result is needed.
func TestInventoryNameOfNothing(t *testing.T) {
	for name, a := range map[string]*csr.Attested{
		"nil":         nil,
		"nothing":     {},
		"not checked": new(csr.Checked).Vouch("x", csr.Grant{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := a.InventoryName(); got != "" || !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("got %q, %v, want %v", got, err, csr.CheckProviderResult)
			}
		})
	}
}

func insecureFixture(t testing.TB) (*requestFixture, csr.Provider) {
	t.Helper()
	f := goodFixture(csr.SignerClientInsecure, csr.RequesterBootstrap)
	f.policy.SignerNames = []string{csr.SignerClientInsecure}
	f.machine.Provider = "insecure"
	f.builder.extensions = append(f.builder.extensions, providerIDExtension(t, goodProviderID))
	p, err := csr.NewInsecureProvider(f.policy)
	if err != nil {
		t.Fatal(err)
	}
	return f, p
}

// TestInsecureIssues goes the whole way, on a CA of its own.
func TestInsecureIssues(t *testing.T) {
	f, p := insecureFixture(t)
	f.encode(t)
	ctx := context.Background()
	accepted, err := csr.Verify(ctx, p, f.request)
	if err != nil {
		t.Fatal(err)
	}
	opts := goodOptions()
	opts.SignerNames = []string{csr.SignerClientInsecure}
	issued := mustIssue(t, newCA(t, opts), accepted)
	if issued.Record.Machine != "insecure:node-1" || issued.Record.ProviderID != goodProviderID || accepted.MachineName() != "machine-1" {
		t.Errorf("record %+v", issued.Record)
	}
	// Nothing that it issues is ever inherited from.
	if issued.Record.ClientOf(goodNode, issued.Record.CredentialID) {
		t.Error("the record counts as attested")
	}
	if _, err := newCA(t, goodOptions()).Issue(ctx, accepted); !errors.Is(err, csr.ErrOtherSigner) {
		t.Errorf("the CA of another signer: %v", err)
	}
}

func TestInsecureRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*requestFixture)
		want   csr.Check
	}{
		"another signer":           {func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerClientTPM }, csr.CheckSignerName},
		"rotation":                 {func(f *requestFixture) { f.ask(csr.RequesterNode) }, csr.CheckRequesterPurpose},
		"recovery":                 {func(f *requestFixture) { f.ask(csr.RequesterRecovery) }, csr.CheckRequesterPurpose},
		"evidence of another kind": {func(f *requestFixture) { f.provider, f.data = "tpm/v1", []byte{1} }, csr.CheckAttestationProvider},
		"unknown machine":          {func(f *requestFixture) { f.machine = nil }, csr.CheckMachineUnknown},
		"instead of none":          {func(f *requestFixture) { f.machine.ProviderID = "none" }, csr.CheckProviderIDMismatch},
		"another provider ID":      {func(f *requestFixture) { f.machine.ProviderID = "test://zone/instance-2" }, csr.CheckProviderIDMismatch},
		"SANs": {func(f *requestFixture) {
			f.builder.extensions = append(f.builder.extensions, sanExtension(dnsSAN(goodNode)))
		}, csr.CheckSANOnClient},
		"no signature": {func(f *requestFixture) { f.builder.badSignature = true }, csr.CheckSignature},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := insecureFixture(t)
			c.change(f)
			f.encode(t)
			if _, err := p.VerifyClientAttestationData(context.Background(), f.request.Parsed()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	f, p := insecureFixture(t)
	f.encode(t)
	if _, err := p.VerifyServingAttestationData(context.Background(), f.request.Parsed()); !errors.Is(err, csr.CheckSignerName) {
		t.Errorf("serving: %v", err)
	}
	if _, err := p.MachineName(context.Background(), nil); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("a name without a result: %v", err)
	}
	f.policy.SignerNames = []string{csr.SignerClientInsecure, csr.SignerClientTPM}
	if _, err := csr.NewInsecureProvider(f.policy); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("with another signer: %v", err)
	}
	if _, err := csr.NewInsecureProvider(nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no policy: %v", err)
	}
}

func TestEndorsementKeyAnnotation(t *testing.T) {
	name, value, err := csr.EndorsementKeyAnnotation(p256Key().Public())
	if err != nil {
		t.Fatal(err)
	}
	if name != "cluster-x-k8s-io/tpm-endorsement-key" {
		t.Errorf("the proposal spells it otherwise: %s", name)
	}
	block, rest := pem.Decode([]byte(value))
	if block == nil || len(rest) > 0 || block.Type != "PUBLIC KEY" {
		t.Fatalf("value %q", value)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !p256Key().Public().(*ecdsa.PublicKey).Equal(key) {
		t.Errorf("key %v, %v", key, err)
	}
	for _, key := range []crypto.PublicKey{"no key", nil} {
		if again, value, err := csr.EndorsementKeyAnnotation(key); again != name || value != "" || !errors.Is(err, csr.CheckUnsupportedKey) {
			t.Errorf("%v: got %q, %q and %v, want the name with the error", key, again, value, err)
		}
	}
}
