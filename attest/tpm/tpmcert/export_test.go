package tpmcert

import (
	"context"
	"crypto/x509"
	"time"
)

// verify returns the verified chain of p to one of the issuer's roots, leaf first.
func (i *issuer) verify(ctx context.Context, w *links, p *AKPresented, now time.Time) ([]*x509.Certificate, error) {
	c, err := (&AKVerifier{issuers: []*issuer{i}}).verify(ctx, w, p, now)
	if err != nil {
		return nil, err
	}
	return c.Chain, nil
}

// holds is verify with a budget of its own.
func (i *issuer) holds(p *AKPresented, now time.Time) ([]*x509.Certificate, error) {
	return i.verify(context.Background(), newTestLinks(10), p, now)
}

// forget empties the memory of machines' certificates, and of intermediates if asked to.
func (m *linkMemory) forget(intermediates bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.leaves)
	if intermediates {
		clear(m.known)
	}
}
