package tpm

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// holds is verify with a budget of its own.
func (i *issuer) holds(p *presented, now time.Time) ([]*x509.Certificate, error) {
	return i.verify(context.Background(), newTestLinks(attest.MaxHelloSignatures), p, now)
}

// ForgetIntermediates empties the kind's memory of verified intermediates, for
// the benchmark of a verifier that sees a chain for the first time.
func (k *Kind) ForgetIntermediates() {
	if k.aks != nil {
		k.aks.issuers[0].known.forget()
	}
	if k.eks != nil {
		k.eks.known.forget()
	}
}

func (m *linkMemory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.known)
}

// For the tests from outside.
var LabStrangeSPKIs = labStrangeSPKIs

const (
	LabSHA1RSA     = labSHA1RSA
	LabECDSASHA256 = labECDSASHA256
)
