package tpmcert

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
