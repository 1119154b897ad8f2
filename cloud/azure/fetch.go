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

// IssuerFetcher gets an issuer's certificate from the place that a certificate names for it
// (authority information access, caIssuers: RFC 5280, 4.2.2.1). Nothing in this package
// fetches by itself; [HTTPFetcher] is an implementation. The fetcher of attest/tpm/tpmcert has
// the same method.
//
// The URL comes from a certificate that nobody has verified yet: whoever files a request
// chooses it. An implementation asks only hosts that it was configured with, does not follow
// redirects to others, and sets its own time limits. What it returns is not trusted: it must
// chain to a root like anything else.
type IssuerFetcher interface {
	// FetchIssuer returns the DER of one certificate, or nil if it does not fetch from that
	// URL. An error means that nothing could be found out now. It is called from many
	// goroutines, and at most four times for one document.
	FetchIssuer(ctx context.Context, url string) ([]byte, error)
}

// fetch gets the missing intermediates of a leaf, one after the other, and returns the
// resulting chains.
func (v *Verifier) fetch(ctx context.Context, leaf *x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	fetched, calls := chain.Pool{}, 0
	for {
		paths, missing := chain.Paths(leaf, v.roots, now, v.intermediates, fetched)
		if len(paths) > 0 {
			return paths, nil
		}
		issuer, err := v.fetchIssuer(ctx, missing, &calls)
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

// fetchIssuer gets the issuer of one certificate from the first of its URLs that has it, or
// returns nil if none has.
func (v *Verifier) fetchIssuer(ctx context.Context, c *x509.Certificate, calls *int) (*x509.Certificate, error) {
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
		der, err := v.fetcher.FetchIssuer(ctx, url)
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
