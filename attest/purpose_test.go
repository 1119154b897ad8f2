package attest

import (
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

// A signer name that says no purpose is one of no method.
func TestPurposesOfSigners(t *testing.T) {
	for name, c := range map[string]struct{ client, serving bool }{
		csr.SignerKubeAPIServerClientKubelet: {true, false}, csr.SignerKubeletServing: {false, true}, "example.com/signer": {false, false}, "": {false, false},
	} {
		request := &csr.Request{Spec: csr.Spec{SignerName: name}}
		if err := checkPurpose(request, false); c.client != (err == nil) {
			t.Errorf("%q, client: %v", name, err)
		}
		if err := checkPurpose(request, true); c.serving != (err == nil) {
			t.Errorf("%q, serving: %v", name, err)
		}
	}
	if checkPurpose(nil, false) == nil || checkPurpose(nil, true) == nil {
		t.Error("no request")
	}
}
