package tpm

import (
	"crypto"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// A password that the key's policy does not ask for is not used.
func TestPasswordThatIsNotAskedFor(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	made, err := tpmkey.Create(t.Context(), tpm, tpmkey.ECDSAP256, tpmkey.Options{PCRs: DefaultPCRs()})
	if err != nil {
		t.Fatal(err)
	}
	k, err := tpmkey.Load(t.Context(), tpm, made.File(), tpmkey.LoadOptions{Password: hidden([]byte("of another key"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Sign(nil, make([]byte, 32), crypto.SHA256); err != nil {
		t.Errorf("got %v", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}
