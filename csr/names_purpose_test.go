package csr

import (
	"testing"
)

// A signer name that says no purpose is one of no method.
func TestPurposesOfSigners(t *testing.T) {
	for name, c := range map[string]struct{ client, serving bool }{
		SignerKubeAPIServerClientKubelet: {true, false}, SignerKubeletServing: {false, true}, "example.com/signer": {false, false}, "": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			request := &Request{Spec: Spec{SignerName: name}}
			if err := CheckPurpose(request, false); c.client != (err == nil) {
				t.Errorf("%q, client: %v", name, err)
			}
			if err := CheckPurpose(request, true); c.serving != (err == nil) {
				t.Errorf("%q, serving: %v", name, err)
			}
		})
	}
	if CheckPurpose(nil, false) == nil || CheckPurpose(nil, true) == nil {
		t.Error("no request")
	}
}
