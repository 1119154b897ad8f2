package csr_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A controller that watches all requests must not deny requests to other signers, however
// many rules they break.
func TestPolicyLeavesOtherSignersAlone(t *testing.T) {
	for name, change := range map[string]func(*requestFixture){
		"another signer": func(f *requestFixture) { f.request.Spec.SignerName = "example.com/kubelet" },
		"Kubernetes' signer of clients": func(f *requestFixture) {
			f.request.Spec.SignerName = "kubernetes.io/kube-apiserver-client"
		},
		"a signer's misspelling": func(f *requestFixture) { f.request.Spec.SignerName = "cluster-x-k8s-io/kubelet-serving-tpm" },
		"a hello":                func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerChallengeTPM },
		"one that this policy does not serve": func(f *requestFixture) {
			f.policy.SignerNames = []string{csr.SignerServingTPM}
		},
		"a request that breaks every rule": func(f *requestFixture) {
			*f.request = csr.Request{Spec: csr.Spec{SignerName: "example.com/kubelet"}, Status: csr.Status{Certificate: []byte{1}}}
			f.request.Metadata.DeletionTimestamp = new(time.Time)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.encode(t)
			change(f)
			checked, err := f.policy.Check(context.Background(), f.request.Parsed())
			if checked != nil || !slices.Equal(brokenRules(err), rules(csr.CheckSignerName)) || !errors.Is(err, csr.ErrOtherSigner) || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%v", err)
			}
			if d := csr.Decide(err); d.Verdict != csr.VerdictIgnore {
				t.Errorf("decided %+v", d)
			}
		})
	}
}

// A request filed for this policy is denied for its target; another is not. A good hello is
// neither refused nor approved.
func TestPolicyOfTargetSigners(t *testing.T) {
	const builtIn = csr.SignerKubeAPIServerClientKubelet
	for row, c := range []struct {
		filed, target string
		want          csr.Verdict // VerdictRetry: no error
	}{
		{csr.SignerChallengeTPM, builtIn, csr.VerdictRetry},
		{csr.SignerChallengeTPM + "/x", builtIn, csr.VerdictIgnore},
		{csr.SignerChallengeTPM, csr.SignerClientTPM, csr.VerdictRetry},
		{csr.SignerChallengeTPM, csr.SignerChallengeTPM, csr.VerdictDeny},
		{csr.SignerChallengeTPM, "example.com/kubelet", csr.VerdictDeny},
		{csr.SignerChallengeTPM, "", csr.VerdictDeny},
		{csr.SignerServingTPM, csr.SignerClientTPM, csr.VerdictDeny},
		{"", "", csr.VerdictDeny},
		{"", csr.SignerClientTPM, csr.VerdictDeny},
		{"example.com/kubelet", csr.SignerClientTPM, csr.VerdictIgnore},
		{"example.com/kubelet", "example.com/kubelet", csr.VerdictIgnore},
		{"cluster.x-k8s.io/kubelet-attestation-challenge-insecure", csr.SignerClientTPM, csr.VerdictIgnore},
		{"cluster.x-k8s.io/kubelet-attestation-challenge-", csr.SignerClientTPM, csr.VerdictIgnore},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			if c.target == builtIn {
				f = goodFixture(builtIn, csr.RequesterBootstrap)
			}
			f.encode(t)
			f.request.Spec.SignerName = c.filed
			checked, err := f.policy.CheckUnsigned(context.Background(), f.request.Parsed(), c.target)
			if (err == nil) != (c.want == csr.VerdictRetry) {
				t.Errorf("filed under %q for %q: %v", c.filed, c.target, err)
			}
			if err == nil && goodVerified(checked).Decision().Verdict != csr.VerdictRetry {
				t.Errorf("filed under %q for %q: a hello is approved", c.filed, c.target)
			}
			if d := csr.Decide(err); d.Verdict != c.want {
				t.Errorf("filed under %q for %q: %+v", c.filed, c.target, d)
			}
			if err != nil && (!errors.Is(err, csr.CheckSignerName) || errors.Is(err, csr.ErrOtherSigner) != (c.want == csr.VerdictIgnore)) {
				t.Errorf("filed under %q for %q: %v", c.filed, c.target, err)
			}
		})
	}
}
