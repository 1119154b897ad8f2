package csr

import (
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/names"
)

// FuzzNames reads any text as the names that a request object and a provider block
// hold: accepted text is spelt one way only, and nothing panics.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"tpm/v1", "tpm/v01", SignerClientTPM, SignerKubeletServing, "cluster-x-k8s-io/kubelet-serving-tpm",
		"system:node:a", "system:bootstrap:abcdef", "nodeattest:recovery:a", "system:node:", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name, version, err := (&Bundle{Provider: s}).ProviderVersion(); err == nil && (name == "" || version < 1 || !strings.HasPrefix(s, name+"/v")) {
			t.Errorf("%q is provider %q, version %d", s, name, version)
		}
		if purpose, err := PurposeOf(s); err == nil && purpose == 0 {
			t.Errorf("%q has the purpose of none", s)
		}
		for _, groups := range [][]string{{NodesGroup, AuthenticatedGroup}, {BootstrappersGroup, AuthenticatedGroup}, {s}} {
			r, err := (&User{Username: s, Groups: groups}).Requester()
			if err == nil && r.NodeName != "" && (!names.ValidNode(r.NodeName) || !strings.HasSuffix(s, ":"+r.NodeName)) {
				t.Errorf("%q is node %q", s, r.NodeName)
			}
		}
	})
}
