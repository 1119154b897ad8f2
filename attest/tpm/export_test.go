package tpm

import (
	"context"
	"crypto/x509"
	"time"
)

// holds is verify with a budget of its own.
func (i *issuer) holds(p *presented, now time.Time) ([]*x509.Certificate, error) {
	return i.verify(context.Background(), newWork(MaxHelloSignatures), p, now)
}

// ForgetIntermediates empties the verifier's memory of verified intermediates, for
// the benchmark of a verifier that sees a chain for the first time.
func (v *Verifier) ForgetIntermediates() {
	if len(v.issuers) > 0 {
		v.issuers[0].known.forget()
	}
	if v.eks != nil {
		v.eks.known.forget()
	}
}

func (m *linkMemory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.known)
}

// CostOf is what the last request that f makes costs: signatures and encryptions.
func (v *Verifier) CostOf(f func()) [2]int {
	last := &work{}
	v.worked = func(w *work) { last = w }
	f()
	v.worked = nil
	return [2]int{last.signatures, last.encryptions}
}

// For the tests from outside.
var LabStrangeSPKIs = labStrangeSPKIs

const (
	LabSHA1RSA     = labSHA1RSA
	LabECDSASHA256 = labECDSASHA256
)
