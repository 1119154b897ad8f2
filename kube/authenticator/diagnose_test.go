package authenticator

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestDiagnose: a joined node is diagnosed by its client certificate, and a node without folders gets none.
func TestDiagnose(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	token := func() Diagnosis {
		all := Diagnose(t.Context(), a.config)
		n := slices.IndexFunc(all, func(d Diagnosis) bool { return d.Subject == "token" })
		if len(all) != 5 || n < 0 {
			t.Fatalf("got %+v", all)
		}
		return all[n]
	}
	if d := token(); d.Broken != nil || !strings.HasPrefix(d.Text, "the bootstrap token is user system:bootstrap:") {
		t.Errorf("before the join: %+v", d)
	}
	testkit.MustDo(a.Rotate(t.Context()))
	filed := f.calls("create ")
	if d := token(); d.Broken != nil || !strings.HasPrefix(d.Text, "the client certificate until ") || !strings.HasSuffix(d.Text, "is user system:node:"+a.config.NodeName) {
		t.Errorf("after it: %+v", d)
	}
	if n := f.calls("create "); n != filed {
		t.Errorf("%d requests filed", n-filed)
	}
	for _, d := range Diagnose(t.Context(), Config{}) {
		if d.Subject != "kubelet" && d.Broken == nil && !d.Unknown {
			t.Errorf("without a configuration: %+v", d)
		}
	}
}
