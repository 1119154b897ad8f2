package attest

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestVerifierIsAProvider: each method accepts requests for its purpose, and MachineName is the
// inventory's.
func TestVerifierIsAProvider(t *testing.T) {
	var v interface {
		csr.Provider
		Challenge(ctx context.Context, hello *csr.Request) ([]byte, error)
	} = newFakeVerifier(t, &fakeKind{})
	n := newFakeNode(t, newFakeProver())
	challenge := testkit.Must(v.Challenge(t.Context(), n.hello(t)))
	answer := n.answer(t, challenge)
	a, err := csr.Verify(t.Context(), v, answer)
	if err != nil || a.MachineName() == "" {
		t.Fatalf("got %+v, %v", a, err)
	}
	if _, ok := a.Details().(*Result); !ok {
		t.Errorf("details are %T", a.Details())
	}
	_, err = v.VerifyServingAttestationData(t.Context(), answer.Parsed())
	expectRefusal(t, err, checkProviderPurpose)
	answer.Spec.SignerName = csr.SignerKubeletServing
	_, err = v.VerifyClientAttestationData(t.Context(), answer.Parsed())
	expectRefusal(t, err, checkProviderPurpose)
	answer.Spec.SignerName = "example.com/x"
	for name, verify := range map[string]func() (*csr.Attested, error){
		"client":  func() (*csr.Attested, error) { return v.VerifyClientAttestationData(t.Context(), answer.Parsed()) },
		"serving": func() (*csr.Attested, error) { return v.VerifyServingAttestationData(t.Context(), answer.Parsed()) },
	} {
		if a, err := verify(); a != nil || !errors.Is(err, checkProviderUnknown) || !errors.Is(err, csr.ErrOtherSigner) {
			t.Errorf("%s under an unknown signer: got %v", name, err)
		}
	}
	if a, err := v.VerifyClientAttestationData(t.Context(), nil); a != nil || !errors.Is(err, errNotMade) {
		t.Errorf("no request: got %v", err)
	}
	if _, err := v.MachineName(t.Context(), nil); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("a name without a result: %v", err)
	}
	var none *Verifier
	if a, err := none.VerifyClientAttestationData(t.Context(), answer.Parsed()); a != nil || !errors.Is(err, errNotMade) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("no verifier: got %v", err)
	}
}
