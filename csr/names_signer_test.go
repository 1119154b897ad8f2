package csr_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

func TestPurposeOf(t *testing.T) {
	for _, c := range []struct {
		name     string
		want     csr.Purpose
		provider string
	}{
		{"cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm", csr.PurposeClient, "tpm"},
		{"cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure", csr.PurposeClient, "insecure"},
		{"cluster.x-k8s.io/kube-apiserver-client-kubelet-aws-ec2", csr.PurposeClient, "aws-ec2"},
		{"cluster.x-k8s.io/kubelet-serving-tpm", csr.PurposeServing, "tpm"},
		{"cluster.x-k8s.io/kubelet-serving-aws", csr.PurposeServing, "aws"},
		{"cluster.x-k8s.io/kubelet-attestation-recovery-tpm", csr.PurposeRecovery, "tpm"},
		{"kubernetes.io/kube-apiserver-client-kubelet", csr.PurposeClient, ""},
		{"kubernetes.io/kubelet-serving", csr.PurposeServing, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := csr.PurposeOf(c.name)
			if err != nil || got != c.want || csr.ProviderOf(c.name) != c.provider {
				t.Errorf("PurposeOf(%q) = %v, %v, provider %q; want %v, %q", c.name, got, err, csr.ProviderOf(c.name), c.want, c.provider)
			}
		})
	}
}

func TestPurposeOfRefuses(t *testing.T) {
	for _, name := range []string{
		"", "kubernetes.io/kube-apiserver-client", "kubernetes.io/legacy-unknown", "kubernetes.io/kube-apiserver-client-kubelet ",
		"cluster.x-k8s.io/kube-apiserver-client-kubelet-", "cluster.x-k8s.io/kube-apiserver-client-kubelet",
		"cluster.x-k8s.io/kube-apiserver-client-kubelet-TPM", "cluster.x-k8s.io/kube-apiserver-client-kubelet-a.b",
		"cluster.x-k8s.io/kube-apiserver-client-kubelet-" + strings.Repeat("a", 64),
		"cluster.x-k8s.io/kubelet-serving-insecure", "cluster.x-k8s.io/kubelet-attestation-recovery-insecure",
		"cluster.x-k8s.io/kubelet-attestation-recovery-x", csr.SignerChallengeTPM, "example.com/x",
	} {
		if got, err := csr.PurposeOf(name); got != 0 || !errors.Is(err, csr.CheckSignerName) {
			t.Errorf("PurposeOf(%q) = %v, %v", name, got, err)
		}
		if got := csr.ProviderOf(name); got != "" {
			t.Errorf("ProviderOf(%q) = %q", name, got)
		}
	}
	_, err := csr.PurposeOf("cluster-x-k8s-io/kubelet-serving-tpm")
	if !errors.Is(err, csr.CheckSignerName) || !strings.Contains(err.Error(), "cluster.x-k8s.io/") {
		t.Errorf("the proposal's spelling: %v", err)
	}
}

func TestSignersOfProviders(t *testing.T) {
	for row, c := range []struct {
		make func(string) (string, error)
		want string
	}{
		{csr.PurposeClient.SignerName, csr.SignerClientTPM}, {csr.PurposeServing.SignerName, csr.SignerServingTPM}, {csr.SignerChallenge, csr.SignerChallengeTPM},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			if got, err := c.make("tpm"); got != c.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
			for _, bad := range []string{"", "A", "a.b", "a/b", "-a", strings.Repeat("a", 64)} {
				if got, err := c.make(bad); got != "" || !errors.Is(err, csr.CheckSignerName) {
					t.Errorf("provider %q: got %q, %v", bad, got, err)
				}
			}
		})
	}
	if got, err := csr.PurposeClient.SignerName(csr.ProviderInsecure); got != csr.SignerClientInsecure || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, f := range []func(string) (string, error){csr.PurposeServing.SignerName, csr.SignerChallenge} {
		if _, err := f(csr.ProviderInsecure); !errors.Is(err, csr.CheckSignerName) {
			t.Errorf("insecure: %v", err)
		}
	}
	if got, err := csr.PurposeRecovery.SignerName("tpm"); got != "" || !errors.Is(err, csr.CheckSignerName) {
		t.Errorf("recovery: got %q, %v", got, err)
	}
}

func TestUsages(t *testing.T) {
	for _, c := range []struct {
		purpose csr.Purpose
		key     bool
		want    []string
	}{
		{csr.PurposeClient, false, []string{"digital signature", "client auth"}},
		{csr.PurposeClient, true, []string{"digital signature", "key encipherment", "client auth"}},
		{csr.PurposeServing, false, []string{"digital signature", "server auth"}},
		{csr.PurposeServing, true, []string{"digital signature", "key encipherment", "server auth"}},
		{csr.PurposeRecovery, false, []string{"digital signature", "client auth"}},
		{0, false, nil},
	} {
		t.Run(fmt.Sprint(c.key), func(t *testing.T) {
			if got := c.purpose.Usages(c.key); !slices.Equal(got, c.want) {
				t.Errorf("Usages(%v, %v) = %q, want %q", c.purpose, c.key, got, c.want)
			}
		})
	}
	csr.PurposeClient.Usages(false)[0] = "any"
	if got := csr.PurposeClient.Usages(false)[0]; got != "digital signature" {
		t.Errorf("a caller changed the next one's usages: %q", got)
	}
}

func TestPurposeString(t *testing.T) {
	for p, want := range map[csr.Purpose]string{0: "purpose(0)", csr.PurposeClient: "client", csr.PurposeServing: "serving", csr.PurposeRecovery: "recovery"} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
