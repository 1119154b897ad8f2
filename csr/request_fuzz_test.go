package csr_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// Whatever the object's JSON is, reading and checking it ends with an answer: a
// checked request that keeps the invariants of every certificate, or an error that
// makes a decision.
func FuzzParseRequestAndCheck(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, c := range []struct {
		signer string
		class  csr.RequesterClass
	}{
		{csr.SignerClientTPM, csr.RequesterBootstrap}, {csr.SignerClientTPM, csr.RequesterRecovery}, {csr.SignerServingTPM, csr.RequesterNode},
		{csr.SignerKubeletServing, csr.RequesterNode}, {csr.SignerRecoveryTPM, csr.RequesterNode}, {csr.SignerClientInsecure, csr.RequesterBootstrap},
	} {
		fixture := goodFixture(c.signer, c.class)
		fixture.encode(f)
		text, err := json.Marshal(fixture.request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(bytes.ReplaceAll(text, []byte("3600"), []byte("1")))
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte(requestJSON))
	f.Add([]byte("{}"))
	f.Add([]byte("null"))
	policy := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).policy
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := csr.ParseServerObject(text)
		if err != nil {
			return
		}
		for _, target := range []string{r.Spec.SignerName, csr.SignerClientTPM, csr.SignerServingTPM} {
			checked, err := policy.CheckUnsigned(context.Background(), r.Parsed(), target)
			if (checked == nil) != (err != nil) {
				t.Fatalf("both or neither: %v, %v", checked, err)
			}
			if err != nil {
				if d := csr.Decide(err); d.Verdict == csr.VerdictApprove || d.Reason == "" || len(d.Message) > csr.MaxMessageSize {
					t.Fatalf("decided %+v on %v", d, err)
				}
				continue
			}
			cn, o := checked.Purpose().SubjectNames(checked.NodeName())
			subject := checked.PKCS10().CSR.Subject
			if cn == "" || subject.CommonName != cn || len(subject.Organization) != 1 || subject.Organization[0] != o {
				t.Fatalf("checked with subject %v", subject)
			}
			if checked.Purpose() != csr.PurposeServing && len(checked.DNSNames())+len(checked.IPAddresses()) > 0 {
				t.Fatal("SANs in a client certificate")
			}
		}
	})
}

// Names that pass are good for user names, file names and DNS.
func FuzzValidNodeName(f *testing.F) {
	for _, s := range []string{"", "a", "node-1.example", "A", "a..b", "-", "ä"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// The same rule in another form: DNS-1123 labels joined by dots.
		want := len(s) <= names.MaxNodeSize
		for label := range strings.SplitSeq(s, ".") {
			inner := strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-")
			want = want && label != "" && inner == "" && !strings.HasPrefix(label, "-") && !strings.HasSuffix(label, "-")
		}
		if got := names.ValidNode(s); got != want {
			t.Errorf("names.ValidNode(%q) = %v", s, got)
		}
		q, err := (&csr.User{Username: csr.NodeUserPrefix + s, Groups: []string{csr.NodesGroup, csr.AuthenticatedGroup}}).Requester()
		if (err == nil) != want || want && q.NodeName != s || !want && !errors.Is(err, csr.CheckRequestUsername) {
			t.Errorf("Requester of %q: %+v, %v", s, q, err)
		}
	})
}
