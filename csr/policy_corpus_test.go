package csr_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

// Kubernetes' own cases of what its approver takes for a kubelet's client request,
// with this policy beside it. The two agree on subject, usages and signer. The
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
		Records: func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) { return nil, csr.ErrNoRecord },
	}
	accepted := 0
	for i, c := range cases.Recognizers {
		r, err := csr.ParseServerObject(c.CSR)
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		// What the cases leave out, and the recognizers do not look at.
		expiration := int32(3600)
		r.User.Groups = []string{"system:nodes", "system:authenticated"}
		r.Spec.ExpirationSeconds = &expiration
		_, err = policy.Check(context.Background(), r.Parsed())
		broken := brokenRules(err)
		if strings.HasSuffix(c.Recognizer, ".isNodeClientCert") { // whoever asks
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
