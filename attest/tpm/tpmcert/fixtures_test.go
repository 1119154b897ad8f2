package tpmcert

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"

	"testing"
	"time"

	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// sentEK is an EK as a node sends it.
type sentEK struct {
	Certificates [][]byte
	PublicKey    []byte
}

// verifyEKOf parses and verifies what a node sent.
func verifyEKOf(ctx context.Context, v *EKVerifier, sent *sentEK, machine *csr.Machine, now time.Time) (*EKFacts, error) {
	if sent == nil {
		return v.Verify(ctx, nil, machine, now, nil)
	}
	p, err := ParseEKPresented(sent.Certificates, sent.PublicKey)
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, p, machine, now, nil)
}

func mustECDSA(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

func newTestLinks(signatures int) *links { return newLinks(attest.NewBudget(signatures)) }

func utf8String(v string) []byte { return tpmlab.Element(cbasn1.UTF8String, []byte(v)) }

// certificateOfSize is a certificate of exactly so many bytes.
func certificateOfSize(t *testing.T, size int) []byte {
	t.Helper()
	for extra := max(0, size-400); ; { // signatures differ in length
		der := tpmlab.CertificateOf(t, extra)
		if len(der) == size {
			return der
		}
		extra = max(0, extra+size-len(der))
	}
}
