package deploy

import (
	"bytes"
	"strings"
	"testing"
)

// TestInsecurePolicies: the component changes who approves and signs for its one signer, and
// nothing else.
func TestInsecurePolicies(t *testing.T) {
	shipped, err := Manifests("approval.yaml")
	if err != nil {
		t.Fatal(err)
	}
	patched, err := Manifests("insecure/approval.yaml")
	if err != nil || len(patched) != len(shipped) {
		t.Fatalf("%d, %v", len(patched), err)
	}
	changed := 0
	for i := range shipped {
		if bytes.Equal(shipped[i], patched[i]) {
			continue
		}
		changed++
		text := string(patched[i])
		for _, want := range []string{"'node-attestation-insecure-signer'", "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"} {
			if strings.Count(text, want) != 1 || strings.Contains(string(shipped[i]), want) {
				t.Errorf("%s is there %d times:\n%s", want, strings.Count(text, want), text)
			}
		}
	}
	if changed != 2 {
		t.Errorf("%d manifests are others", changed)
	}
}
