package attest

import (
	"context"
	"crypto/x509"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	maxFetched      = 4        // issuer certificates fetched for one EK
	maxIssuerURLs   = 4        // of one certificate
	maxURLSize      = 512      // bytes
	maxFetchedBytes = 64 << 10 // of one answer
)

// IssuerFetcher gets the certificate of an issuer from where a certificate says that
// it is (authority information access, caIssuers: RFC 5280, 4.2.2.1). Nothing in this
// package fetches by itself.
//
// The URL comes from a certificate that nobody has verified yet: whoever files a
// request chooses it. An implementation asks only hosts that it was told of, follows
// no redirects elsewhere, and sets its own time limits. What it returns is not
// trusted: it must chain to a root as anything else.
type IssuerFetcher interface {
	// FetchIssuer returns the DER of one certificate, or nil where it does not go to
	// that URL. An error means that nothing could be found out now. It is called from
	// many goroutines and at most 16 times for one EK.
	FetchIssuer(ctx context.Context, url string) ([]byte, error)
}

// fetchIssuer gets the certificate of cert's issuer, or nil where no URL leads to one.
func fetchIssuer(ctx context.Context, f IssuerFetcher, cert *x509.Certificate) (*x509.Certificate, error) {
	for n, url := range cert.IssuingCertificateURL {
		if n == maxIssuerURLs {
			break
		}
		if len(url) > maxURLSize {
			continue
		}
		der, err := f.FetchIssuer(ctx, url)
		if err != nil {
			return nil, fmt.Errorf("attest: issuer certificate of %s: %w", refusal.OrNothing(cert.Issuer.String()), err)
		}
		if der == nil || len(der) > maxFetchedBytes {
			continue
		}
		c, err := x509.ParseCertificate(der)
		if err != nil || string(c.RawSubject) != string(cert.RawIssuer) {
			continue
		}
		return c, nil
	}
	return nil, nil
}
