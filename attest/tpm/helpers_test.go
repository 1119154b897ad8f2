package tpm

import (
	"context"
	"crypto"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/work"
	"github.com/nodeattest/nodeattest/refusal"
)

// sentEK is an EK as a node sends it.
type sentEK struct {
	Certificates [][]byte
	PublicKey    []byte
}

// verifyEKOf parses and verifies what a node sent.
func verifyEKOf(ctx context.Context, v *EKVerifier, sent *sentEK, machine *csr.Machine, now time.Time) (*EKFacts, error) {
	p, err := ParseEKPresented(sent.Certificates, sent.PublicKey)
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, p, machine, now, nil)
}

func newTestLinks(signatures int) *links { return newLinks(work.New(signatures)) }

func must(t testing.TB, b []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hasCheck: the error is a refusal of one check.
func hasCheck(err error) bool {
	_, ok := errors.AsType[*refusal.Error](err)
	return ok
}

func fst(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func sameTestKey(a, b crypto.PublicKey) bool {
	return a.(interface{ Equal(crypto.PublicKey) bool }).Equal(b)
}
