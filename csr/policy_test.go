package csr_test

import (
	"context"
	"encoding/asn1"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A policy that cannot decide refuses everything, and denies nothing.
func TestUnusablePolicies(t *testing.T) {
	for name, change := range map[string]func(*csr.Policy){
		"zero":                       func(p *csr.Policy) { *p = csr.Policy{} },
		"no signer names":            func(p *csr.Policy) { p.SignerNames = nil },
		"unknown signer name":        func(p *csr.Policy) { p.SignerNames = append(p.SignerNames, "example.com/x") },
		"challenge signer":           func(p *csr.Policy) { p.SignerNames = append(p.SignerNames, csr.SignerChallengeTPM) },
		"no machines":                func(p *csr.Policy) { p.Machines = nil },
		"no records":                 func(p *csr.Policy) { p.IssuedRecord = nil },
		"flag needed and not known":  func(p *csr.Policy) { p.RequireFlag = true },
		"flag is the SAN extension":  func(p *csr.Policy) { p.Flag = asn1.ObjectIdentifier{2, 5, 29, 17} },
		"flag is key usage":          func(p *csr.Policy) { p.Flag = asn1.ObjectIdentifier{2, 5, 29, 15} },
		"flag is the provider ID's":  func(p *csr.Policy) { p.Flag = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 1, 21} },
		"flag is no identifier":      func(p *csr.Policy) { p.Flag = asn1.ObjectIdentifier{9} },
		"invalid prefix":             func(p *csr.Policy) { p.ReservedIPs = make([]netip.Prefix, 1) },
		"reserved wildcard":          func(p *csr.Policy) { p.ReservedDNSNames = []string{"ok.example", "*.svc.corp.example"} },
		"reserved name with a dot":   func(p *csr.Policy) { p.ReservedDNSNames = []string{"api.corp.example."} },
		"reserved name with a port":  func(p *csr.Policy) { p.ReservedDNSNames = []string{"api.corp.example:6443"} },
		"reserved URL":               func(p *csr.Policy) { p.ReservedDNSNames = []string{"https://api.corp.example"} },
		"reserved nothing":           func(p *csr.Policy) { p.ReservedDNSNames = []string{""} },
		"reserved dot":               func(p *csr.Policy) { p.ReservedDNSNames = []string{"."} },
		"reserved two dots":          func(p *csr.Policy) { p.ReservedDNSNames = []string{"..corp.example"} },
		"reserved with a space":      func(p *csr.Policy) { p.ReservedDNSNames = []string{" api.corp.example"} },
		"reserved address":           func(p *csr.Policy) { p.ReservedDNSNames = []string{"10.96.0.1"} },
		"cap just under the least":   func(p *csr.Policy) { p.MaxLifetime = 10*time.Minute - 1 },
		"negative cap":               func(p *csr.Policy) { p.MaxLifetime = -time.Hour },
		"cap under the least":        func(p *csr.Policy) { p.MaxLifetime = time.Minute },
		"signer's duration over cap": func(p *csr.Policy) { p.BuiltInSignerDuration = 25 * time.Hour },
		"no cluster":                 func(p *csr.Policy) { p.ClusterIDs = nil },
		"every cluster's name":       func(p *csr.Policy) { p.ClusterIDs = []string{"kubernetes"} },
		"signer's duration negative": func(p *csr.Policy) { p.BuiltInSignerDuration = -1 },
		"signer's duration short":    func(p *csr.Policy) { p.BuiltInSignerDuration = 10*time.Minute - 1 },
		"signer's duration of 24 ns": func(p *csr.Policy) { p.BuiltInSignerDuration = 24 },
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			change(f.policy)
			checked, err := f.check(t)
			if checked != nil || !errors.Is(err, refusal.CheckConfig) || !slices.Equal(brokenRules(err), rules(refusal.CheckConfig)) {
				t.Error(err)
			}
			if d := csr.Decide(err); d.Verdict != csr.VerdictRetry {
				t.Errorf("decided %v", d)
			}
			if err := f.policy.Validate(); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("Validate says %v", err)
			}
		})
	}
	if err := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).policy.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*csr.Policy){
		"least cap":      func(p *csr.Policy) { p.MaxLifetime = 10 * time.Minute },
		"least duration": func(p *csr.Policy) { p.BuiltInSignerDuration = 10 * time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			p := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).policy
			if change(p); p.Validate() != nil {
				t.Error(p.Validate())
			}
		})
	}
	var none *csr.Policy
	if _, err := none.Check(context.Background(), (&csr.Request{}).Parsed()); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("nil policy: %v", err)
	}
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	if _, err := f.policy.Check(context.Background(), nil); !errors.Is(err, csr.CheckNotChecked) {
		t.Errorf("nil request: %v", err)
	}
	if _, err := f.policy.CheckUnsigned(context.Background(), nil, csr.SignerClientTPM); !errors.Is(err, csr.CheckNotChecked) {
		t.Errorf("nil request: %v", err)
	}
}

// The error of a lifetime out of bounds names the field that the caller wrote.
func TestLifetimeOutOfBounds(t *testing.T) {
	policy := func(change func(*csr.Policy)) error {
		p := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).policy
		change(p)
		return p.Validate()
	}
	ca := func(c csr.CAConfig) error {
		_, err := csr.NewCA(nil, nil, c)
		return err
	}
	for want, err := range map[string]error{
		"MaxLifetime 5m0s":             policy(func(p *csr.Policy) { p.MaxLifetime = 5 * time.Minute }),
		"MaxLifetime -1ns":             policy(func(p *csr.Policy) { p.MaxLifetime = -1 }),
		"BuiltInSignerDuration 2h0m0s": policy(func(p *csr.Policy) { p.MaxLifetime, p.BuiltInSignerDuration = time.Hour, 2*time.Hour }),
		"MaxLifetime 1s":               ca(csr.CAConfig{MaxLifetime: time.Second}),
		"MaxRecoveryLifetime 59s":      ca(csr.CAConfig{MaxRecoveryLifetime: 59 * time.Second}),
	} {
		if !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), "got "+want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}

// A callback that could not answer is asked again, unless the request is refused for
// another reason.
func TestPolicyCallbacksThatDoNotAnswer(t *testing.T) {
	down := errors.New("inventory is down")
	for name, answer := range map[string]struct {
		err  error
		want csr.Verdict
	}{
		"error":                     {down, csr.VerdictRetry},
		"nothing":                   {nil, csr.VerdictRetry},
		"deadline":                  {context.DeadlineExceeded, csr.VerdictRetry},
		"retry":                     {refusal.Retry(down), csr.VerdictRetry},
		"no machine":                {csr.ErrNoMachine, csr.VerdictDeny},
		"no machine, wrapped":       {fmt.Errorf("inventory: %w", csr.ErrNoMachine), csr.VerdictDeny},
		"no machine, but not sure":  {refusal.Retry(csr.ErrNoMachine), csr.VerdictRetry},
		"the error of other things": {csr.ErrNoRecord, csr.VerdictRetry},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) { return nil, answer.err }
			checked, err := f.check(t)
			if checked != nil || csr.Decide(err).Verdict != answer.want {
				t.Errorf("machines, %s: %v, decided %v", name, err, csr.Decide(err))
			}
			if answer.want == csr.VerdictRetry && (!errors.Is(err, refusal.ErrRetry) || answer.err != nil && !errors.Is(err, answer.err)) {
				t.Errorf("machines, %s: %v", name, err)
			}
			if answer.want == csr.VerdictDeny && (!errors.Is(err, csr.CheckMachineUnknown) || !errors.Is(err, csr.ErrNoMachine)) {
				t.Errorf("machines, %s: %v", name, err)
			}

			f.request.Spec.Usages = []string{"any"}
			_, err = f.check(t)
			if d := csr.Decide(err); d.Verdict != csr.VerdictDeny || d.Reason != "Usages" {
				t.Errorf("machines, %s, and a violation: %+v", name, d)
			}
		})
	}

	f := goodFixture(csr.SignerKubeletServing, csr.RequesterNode)
	for _, answer := range []error{down, nil, context.Canceled, csr.ErrNoMachine} {
		f.policy.IssuedRecord = func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) { return nil, answer }
		if _, err := f.check(t); csr.Decide(err).Verdict != csr.VerdictRetry || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("records, %v: %v", answer, err)
		}
	}
}

func TestPolicyContext(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	checked, err := f.policy.Check(ctx, f.request.Parsed())
	if checked != nil || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	var none context.Context
	if _, err := f.policy.Check(none, f.request.Parsed()); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("no context: %v", err)
	}
	type key struct{}
	ctx = context.WithValue(context.Background(), key{}, "value")
	machines := f.policy.Machines
	f.policy.Machines = func(ctx context.Context, q csr.Question) (*csr.Machine, error) {
		if ctx.Value(key{}) != "value" || q.NodeName != goodNode || q.Request != f.request || !slices.Equal(q.ClusterIDs, []string{goodCluster}) {
			t.Errorf("the callback does not get what the check got: %+v", q)
		}
		return machines(ctx, q)
	}
	if _, err := f.policy.Check(ctx, f.request.Parsed()); err != nil {
		t.Error(err)
	}
}

// The cheap check leaves the signature to its caller, and answers it once.
func TestCheckUnsigned(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.builder.badSignature = true
	f.encode(t)
	checked, err := f.policy.CheckUnsigned(context.Background(), f.request.Parsed(), csr.SignerClientTPM)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if err := checked.CheckSignature(); !errors.Is(err, csr.CheckSignature) {
				t.Errorf("got %v", err)
			}
		})
	}
	wait.Wait()
	if err := new(csr.Checked).CheckSignature(); !errors.Is(err, csr.CheckNotChecked) {
		t.Errorf("zero value: %v", err)
	}
}

func TestCheckedSaysWhatWasChecked(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterNode)
	f.request.Spec.SignerName = csr.SignerChallengeTPM
	f.request.Spec.Usages = csr.PurposeClient.Usages(true)
	f.builder.extensions = append(f.builder.extensions, providerIDExtension(t, goodProviderID))
	c := f.mustCheck(t)
	if !reflect.DeepEqual(c.Machine(), f.machine) || c.NodeName() != goodNode || c.Purpose() != csr.PurposeClient {
		t.Errorf("got %v %q %v", c.Machine(), c.NodeName(), c.Purpose())
	}
	if c.SignerName() != csr.SignerClientTPM || c.ClaimedProviderID().Unproven() != goodProviderID {
		t.Errorf("got signer %q, provider ID %q", c.SignerName(), c.ClaimedProviderID().Unproven())
	}
	if c.Requester() != (csr.Requester{Class: csr.RequesterNode, NodeName: goodNode}) {
		t.Errorf("got %+v", c.Requester())
	}
	if c.Bundle().Provider != "tpm/v1" || string(c.Bundle().Data) != "evidence" || c.PKCS10().CSR == nil {
		t.Errorf("got %+v", c.Bundle())
	}
	if c.DNSNames() != nil || c.IPAddresses() != nil {
		t.Errorf("got %q %v", c.DNSNames(), c.IPAddresses())
	}
	if new(csr.Checked).ClaimedProviderID().Unproven() != "" {
		t.Error("the zero value claims a provider ID")
	}
}

func TestPolicyIsSafeForManyGoroutines(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	f.encode(t)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 20 {
				if _, err := f.policy.Check(context.Background(), f.request.Parsed()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// The policy's own work is small compared with reading the request: parsed fields stand in one
// Parsed.
func TestPolicyAllocations(t *testing.T) {
	for signer, most := range map[string]float64{csr.SignerClientTPM: 3, csr.SignerServingTPM: 5} {
		f := goodFixture(signer, csr.RequesterNode)
		f.encode(t)
		ctx := context.Background()
		parsing := testing.AllocsPerRun(100, func() {
			bundle, err := csr.Parse(f.request.Spec.Request)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := csr.ParsePKCS10(bundle.Request); err != nil {
				t.Fatal(err)
			}
		})
		checking := testing.AllocsPerRun(100, func() {
			if _, err := f.policy.CheckUnsigned(ctx, f.request.Parsed(), signer); err != nil {
				t.Fatal(err)
			}
		})
		if checking-parsing > most {
			t.Errorf("%s: %v allocations in addition to %v for parsing, want at most %v", signer, checking-parsing, parsing, most)
		}
	}
}

func BenchmarkCheckUnsigned(b *testing.B) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterNode)
	f.encode(b)
	b.Run("parsing alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bundle, err := csr.Parse(f.request.Spec.Request)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := csr.ParsePKCS10(bundle.Request); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("with the policy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.policy.CheckUnsigned(context.Background(), f.request.Parsed(), csr.SignerClientTPM); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Kubernetes' own cases of what its approver takes for a kubelet's client request,
// and by this policy. The two agree on subject, usages and signer. The
// approver's "self" recognizer also wants the requester to be the node.
func TestPolicyAgainstKubernetesApprover(t *testing.T) {
	corpus := os.Getenv("NODEATTEST_CORPUS")
	if corpus == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory with kubernetes/sarapprove_cases.json")
	}
	text, err := os.ReadFile(filepath.Join(corpus, "kubernetes", "sarapprove_cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Recognizers []struct {
			CSR        json.RawMessage `json:"csr"`
			Expect     bool            `json:"expect"`
			Recognizer string          `json:"recognizer"`
		} `json:"recognizers"`
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases.Recognizers) < 36 {
		t.Fatalf("%d cases, want 36 or more", len(cases.Recognizers))
	}
	policy := &csr.Policy{
		SignerNames: []string{csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeletServing},
		ClusterIDs:  []string{goodCluster},
		Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
			return &csr.Machine{BootstrapReady: true}, nil
		},
		IssuedRecord: func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) { return nil, csr.ErrNoRecord },
	}
	accepted := 0
	for i, c := range cases.Recognizers {
		r, err := csr.ParseServerObject(c.CSR)
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		// Fields that the cases leave out, and the recognizers do not read.
		expiration := int32(3600)
		r.User.Groups = []string{"system:nodes", "system:authenticated"}
		r.Spec.ExpirationSeconds = &expiration
		_, err = policy.Check(context.Background(), r.Parsed())
		broken := brokenRules(err)
		if strings.HasSuffix(c.Recognizer, ".isNodeClientCert") { // for every requester
			broken = slices.DeleteFunc(broken, func(r csr.Check) bool {
				return r == csr.CheckRequestUsername || r == csr.CheckRequesterOtherNode
			})
		}
		if got := len(broken) == 0; got != c.Expect {
			t.Errorf("case %d, %s: want %v, broken %q", i, c.Recognizer, c.Expect, broken)
		}
		if c.Expect {
			accepted++
		}
	}
	if accepted == 0 || accepted == len(cases.Recognizers) {
		t.Errorf("%d of %d cases are to be accepted: they test nothing", accepted, len(cases.Recognizers))
	}
}
