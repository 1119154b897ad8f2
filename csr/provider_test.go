package csr_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// fakeProvider verifies by the policy of a fixture alone, and notes what it was asked.
type fakeProvider struct {
	policy *csr.Policy
	change func(*csr.Attested) *csr.Attested
	err    error
	asked  []string
	seen   func(*csr.Parsed) // what it is given, if set
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
		"nothing":           func(*csr.Attested) *csr.Attested { return nil },
		"checked by nobody": func(*csr.Attested) *csr.Attested { return new(csr.Checked).Vouch("x", csr.Grant{}, nil) },
		"another request":   func(*csr.Attested) *csr.Attested { return otherAttested },
		"no machine":        func(a *csr.Attested) *csr.Attested { return a.Checked().Vouch("", a.Grant(), nil) },
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
	for name, p := range map[string]csr.Provider{"none": nil, "a nil pointer": (*fakeProvider)(nil)} {
		if _, err := csr.Verify(t.Context(), p, f.request); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("provider %s: %v", name, err)
		}
	}
	f.machine.Name = ""
	if _, err := csr.Verify(t.Context(), fake, f.request); !errors.Is(err, csr.CheckMachineUnknown) {
		t.Errorf("a machine without a name: %v", err)
	}
}
