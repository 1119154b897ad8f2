package tpm

import (
	"bytes"
	"context"

	"crypto/x509"

	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// leafUnder is an AK's certificate by the CA.
func leafUnder(t testing.TB, ca *tpmlab.Cert) []byte {
	t.Helper()
	leaf := tpmlab.AKCert(ca.Subject, tpmlab.NewP256(t).Public())
	leaf.Algorithm = tpmlab.AlgorithmOf(ca.Key.Public())
	return leaf.Sign(t, ca.Key)
}

func ekVerifierOf(t testing.TB, c tpmcert.EKVerifierConfig) *tpmcert.EKVerifier {
	t.Helper()
	v, err := tpmcert.NewEKVerifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func trusting(p tpmcert.EKProfile, roots ...*tpmlab.CA) tpmcert.EKVerifierConfig {
	i := tpmcert.EKIssuer{Profile: p}
	for _, r := range roots {
		i.Roots = append(i.Roots, r.Cert)
	}
	return tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{i}}
}

func verifyAt(v *tpmcert.EKVerifier, at time.Time, certs ...*x509.Certificate) (*tpmcert.EKFacts, error) {
	ek := &sentEK{}
	for _, c := range certs {
		ek.Certificates = append(ek.Certificates, c.Raw)
	}
	return verifyEKOf(context.Background(), v, ek, nil, at)
}

func filled(n int, first byte) []byte {
	b := bytes.Repeat([]byte{0xa5}, n)
	if n > 0 {
		b[0] = first
	}
	return b
}
