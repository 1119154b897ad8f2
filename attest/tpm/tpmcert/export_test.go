package tpmcert

import (
	"context"
	"crypto/x509"
	"time"
)

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
