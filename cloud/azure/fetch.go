package azure

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits on what is fetched for one document.
const (
	maxFetches     = 4 // calls, and therefore intermediates
	maxURLSize     = 512
	maxFetchedSize = 16 << 10
)

// fetch gets the missing intermediates of a leaf, one after the other, and returns the
// resulting chains.
func (v *Verifier) fetch(ctx context.Context, leaf *x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	fetched, calls := chain.Pool{}, 0
	for {
		paths, missing := chain.Paths(leaf, v.roots, now, v.intermediates, fetched)
		if len(paths) > 0 {
			return paths, nil
		}
		issuer, err := v.fetchOne(ctx, missing, &calls)
		if err != nil {
			return nil, err
		}
		subject := string(missing.RawIssuer)
		if issuer == nil || len(fetched[subject]) > 0 {
			return nil, unknownIssuer(missing)
		}
		fetched[subject] = append(fetched[subject], issuer)
	}
}

// fetchOne gets the issuer of one certificate from the first of its URLs that has it, or
// returns nil if none has.
func (v *Verifier) fetchOne(ctx context.Context, c *x509.Certificate, calls *int) (*x509.Certificate, error) {
	var failed error
	for _, url := range c.IssuingCertificateURL {
		if len(url) > maxURLSize {
			continue
		}
		if *calls == maxFetches {
			break
		}
		*calls++
		if err := ctx.Err(); err != nil {
			return nil, refusal.Retry(err)
		}
		der, err := v.fetchIssuer(ctx, url)
		if err != nil {
			failed = err
			continue
		}
		if len(der) > maxFetchedSize {
			continue
		}
		issuer, err := x509.ParseCertificate(der)
		if err == nil && chain.Issued(c, issuer) {
			return issuer, nil
		}
	}
	if failed != nil {
		return nil, refusal.Retry(fmt.Errorf("azure: the issuer's certificate %s: %w", refusal.Text(c.Issuer.String()), failed))
	}
	return nil, nil
}
