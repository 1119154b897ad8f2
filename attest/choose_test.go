package attest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	clientSigner    = "cluster.x-k8s.io/kube-apiserver-client-kubelet-"
	servingSigner   = "cluster.x-k8s.io/kubelet-serving-"
	challengeSigner = "cluster.x-k8s.io/kubelet-attestation-challenge-"
)

// choosing is a verifier of two kinds, tpm from version 2 on with all its signers, and aws in
// version 1 with that of client certificates. open adds Kubernetes' own signers.
func choosing(t *testing.T, open bool) *Verifier {
	t.Helper()
	c := fakeConfig(t, &fakeKind{describe: func(d *Description) { d.Provider, d.Versions = "tpm", []int{1, 3, 2} }},
		&fakeKind{describe: func(d *Description) { d.Provider = "aws" }})
	c.MinimumVersions = map[string]int{"tpm": 2}
	c.Policy.SignerNames = []string{csr.SignerServingTPM, csr.SignerClientTPM, csr.SignerRecoveryTPM, clientSigner + "aws", csr.SignerServingTPM, clientSigner + "rack"}
	if open {
		c.Policy.SignerNames = append(c.Policy.SignerNames, csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeletServing)
		c.Policy.IssuedRecord = func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) { return nil, csr.ErrNoRecord }
	}
	v := testkit.Must(NewVerifier(c))
	return v
}

// TestChoose: the one place that chooses a kind, and looks at nothing of the request but its signer
// and its provider block.
func TestChoose(t *testing.T) {
	hello := newFakeNode(t, newFakeProver()).hello(t)
	for name, c := range map[string]struct {
		signer, block string
		want          string // the provider
		refused       Check
		verdict       csr.Verdict // if it is refused
	}{
		"client":                     {csr.SignerClientTPM, "tpm/v2", "tpm", "", 0},
		"serving":                    {csr.SignerServingTPM, "tpm/v2", "tpm", "", 0},
		"recovery":                   {csr.SignerRecoveryTPM, "tpm/v3", "tpm", "", 0},
		"hello":                      {csr.SignerChallengeTPM, "tpm/v2", "tpm", "", 0},
		"built-in":                   {csr.SignerKubeAPIServerClientKubelet, "tpm/v2", "tpm", "", 0},
		"built-in, the other":        {csr.SignerKubeAPIServerClientKubelet, "aws/v1", "aws", "", 0},
		"another kind":               {clientSigner + "aws", "aws/v1", "aws", "", 0},
		"under the minimum":          {csr.SignerClientTPM, "tpm/v1", "", csr.CheckProviderVersion, csr.VerdictDeny},
		"over all":                   {csr.SignerClientTPM, "tpm/v4", "", csr.CheckProviderVersion, csr.VerdictDeny},
		"hello, under the minimum":   {csr.SignerChallengeTPM, "tpm/v1", "", csr.CheckProviderVersion, csr.VerdictDeny},
		"built-in, another version":  {csr.SignerKubeAPIServerClientKubelet, "aws/v2", "", csr.CheckProviderVersion, csr.VerdictDeny},
		"no evidence":                {csr.SignerClientTPM, "", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"built-in, no evidence":      {csr.SignerKubeAPIServerClientKubelet, "", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"evidence of another":        {csr.SignerClientTPM, "aws/v1", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"evidence of no kind":        {csr.SignerClientTPM, "x/v2", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"evidence of the insecure":   {csr.SignerClientTPM, "insecure/v1", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"built-in, of no kind":       {csr.SignerKubeAPIServerClientKubelet, "x/v1", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"hello of another":           {challengeSigner + "aws", "tpm/v2", "", csr.CheckAttestationProvider, csr.VerdictDeny},
		"another signer":             {clientSigner + "gce", "gce/v1", "", checkProviderUnknown, csr.VerdictIgnore},
		"hello to another":           {challengeSigner + "gce", "gce/v1", "", checkProviderUnknown, csr.VerdictIgnore},
		"hello to the insecure":      {challengeSigner + "insecure", "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"a name that is longer":      {challengeSigner + "tpm.x", "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"a name that is cut":         {challengeSigner, "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"the provider as a signer":   {"tpm", "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"of the policy's, no kind's": {clientSigner + "rack", "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"one that it does not serve": {servingSigner + "aws", "aws/v1", "", checkProviderUnknown, csr.VerdictIgnore},
		"the insecure signer":        {csr.SignerClientInsecure, "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"built-in serving":           {csr.SignerKubeletServing, "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"the proposal's spelling":    {"cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm", "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"another product's":          {"example.com/x", "tpm/v2", "", checkProviderUnknown, csr.VerdictIgnore},
		"no signer":                  {"", "tpm/v2", "", checkProviderUnknown, csr.VerdictDeny},
	} {
		t.Run(name, func(t *testing.T) {
			request := relabelled(t, hello, c.block)
			request.Spec.SignerName = c.signer
			k, err := choosing(t, true).choose(t.Context(), request.Parsed())
			if c.refused == "" {
				if err != nil || k.Provider != c.want {
					t.Errorf("got %v, %v", k, err)
				}
				return
			}
			if k != nil || !errors.Is(err, c.refused) || csr.Decide(err).Verdict != c.verdict || errors.Is(err, csr.ErrOtherSigner) != (c.verdict == csr.VerdictIgnore) {
				t.Errorf("got %v, %v, want %v and %v", k, err, c.refused, c.verdict)
			}
			if c.block == "" && !strings.Contains(err.Error(), "without evidence") {
				t.Error(err)
			}
		})
	}
	request := relabelled(t, hello, "tpm/v2")
	request.Spec.SignerName = csr.SignerKubeAPIServerClientKubelet
	if k, err := choosing(t, false).choose(t.Context(), request.Parsed()); k != nil || !errors.Is(err, checkProviderUnknown) {
		t.Errorf("the built-in signer, which is not open: got %v, %v", k, err)
	}
}

func TestChooseNothing(t *testing.T) {
	v, request := choosing(t, true), relabelled(t, newFakeNode(t, newFakeProver()).hello(t), "tpm/v2")
	request.Spec.SignerName = csr.SignerClientTPM
	if k, err := v.choose(t.Context(), nil); k != nil || !errors.Is(err, errNotMade) {
		t.Errorf("nil: got %v, %v", k, err)
	}
	if k, err := v.choose(t.Context(), (*csr.Request)(nil).Parsed()); k != nil || !errors.Is(err, errNotMade) {
		t.Errorf("no request: got %v, %v", k, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"nil": nil, "cancelled": ctx} {
		if k, err := v.choose(ctx, request.Parsed()); k != nil || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("context %s: got %v, %v", name, k, err)
		}
	}
	for name, v := range map[string]*Verifier{"nil": nil, "zero": {}} {
		if k, err := v.choose(t.Context(), request.Parsed()); k != nil || !errors.Is(err, errNotMade) {
			t.Errorf("verifier %s: got %v, %v", name, k, err)
		}
	}
	for text, want := range map[string]Check{"x": "bundle-block", "": "bundle-size"} {
		request.Spec.Request = []byte(text)
		if k, err := v.choose(t.Context(), request.Parsed()); k != nil || !errors.Is(err, want) {
			t.Errorf("text %q: got %v, %v", text, k, err)
		}
	}
}

func TestSignersOfAVerifier(t *testing.T) {
	for open, want := range map[bool][]string{
		false: {clientSigner + "aws", csr.SignerClientTPM, csr.SignerRecoveryTPM, csr.SignerServingTPM},
		true:  {clientSigner + "aws", csr.SignerClientTPM, csr.SignerRecoveryTPM, csr.SignerServingTPM, csr.SignerKubeAPIServerClientKubelet},
	} {
		slices.Sort(want)
		v := choosing(t, open)
		if got := v.SignerNames(); !slices.Equal(got, want) {
			t.Errorf("open %t: got %q, want %q", open, got, want)
		}
		v.SignerNames()[0] = "changed"
		if got := v.SignerNames(); !slices.Equal(got, want) {
			t.Errorf("changed: got %q", got)
		}
		if got := v.ChallengeSigners(); !slices.Equal(got, []string{csr.SignerChallengeTPM, challengeSigner + "aws"}) {
			t.Errorf("hellos: got %q", got)
		}
	}
}

// TestChallengeOfARequest: what asks for a certificate is left to who decides about certificates,
// whatever is in it.
func TestChallengeOfARequest(t *testing.T) {
	hello := newFakeNode(t, newFakeProver()).hello(t)
	for _, signer := range []string{csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM, csr.SignerKubeAPIServerClientKubelet,
		csr.SignerKubeletServing, csr.SignerClientInsecure, "example.com/x", challengeSigner + "rack"} {
		request := relabelled(t, hello, "tpm/v9")
		request.Spec.SignerName = signer
		challenge, err := choosing(t, true).Challenge(t.Context(), request)
		if challenge != nil || !errors.Is(err, csr.ErrOtherSigner) || csr.Decide(err).Verdict != csr.VerdictIgnore || !strings.Contains(err.Error(), signer) {
			t.Errorf("%s: got %q, %v", signer, challenge, err)
		}
	}
}

// TestChooseNeverTrustsAnnotations sets every annotation that means something: the outcome is the
// same.
func TestChooseNeverTrustsAnnotations(t *testing.T) {
	hello := newFakeNode(t, newFakeProver()).hello(t)
	for _, block := range []string{"tpm/v1", "tpm/v2"} {
		request := relabelled(t, hello, block)
		request.Spec.SignerName = csr.SignerClientTPM
		request.Metadata.Annotations = map[string]string{"cluster.x-k8s.io/kubelet-authenticator-attestation-versions": "tpm/v1",
			"cluster-x-k8s-io/tpm-endorsement-key": "-----BEGIN PUBLIC KEY-----"}
		if _, err := choosing(t, true).choose(t.Context(), request.Parsed()); (err == nil) != (block == "tpm/v2") {
			t.Errorf("%s: %v", block, err)
		}
	}
}
