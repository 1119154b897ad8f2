package tpm

import (
	"context"
	"crypto"
	"errors"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// sentEK is an EK as a node sends it.
type sentEK struct {
	Certificates [][]byte
	PublicKey    []byte
}

// verifyEKOf parses and verifies what a node sent.
func verifyEKOf(ctx context.Context, v *tpmcert.EKVerifier, sent *sentEK, machine *csr.Machine, now time.Time) (*tpmcert.EKFacts, error) {
	if sent == nil {
		return v.Verify(ctx, nil, machine, now, nil)
	}
	p, err := tpmcert.ParseEKPresented(sent.Certificates, sent.PublicKey)
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, p, machine, now, nil)
}

func sameTestKey(a, b crypto.PublicKey) bool {
	return a.(interface{ Equal(crypto.PublicKey) bool }).Equal(b)
}

// expectField expects a refusal for one field.
func expectField(t *testing.T, err error, bad string) {
	t.Helper()
	tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	if e, ok := errors.AsType[*refusal.Error](err); ok && e.Got != "a bad "+bad {
		t.Errorf("got %q, want a bad %s", e.Got, bad)
	}
}

// subjectOfTest is a request for the key.
func subjectOfTest(t *testing.T, private crypto.Signer) attest.Subject {
	t.Helper()
	request, err := csr.Create(csr.PurposeClient, private, "node-1", csr.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return attest.Subject{Request: request, SignerName: csr.SignerClientTPM, ClusterID: "cluster"}
}

// newTestAttester is an attester with a TPM's evidence.
func newTestAttester(t testing.TB, tpm transport.TPM, source AKSource, o ProverOptions) *attest.Attester {
	t.Helper()
	p, err := NewProver(tpm, source, o)
	if err != nil {
		t.Fatal(err)
	}
	a, err := attest.NewAttester(p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
