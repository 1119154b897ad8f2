package tpmcert

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/nodeattest/nodeattest/internal/caissuers"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	maxFetched    = 4   // issuer certificates fetched for one request
	maxIssuerURLs = 4   // of one certificate
	maxURLSize    = 512 // bytes
)

// IssuerFetcher fetches an issuer's certificate from where another certificate says it is
// (authority information access, caIssuers: RFC 5280, 4.2.2.1). Nothing in this package
// fetches by itself.
//
// The URL comes from a certificate that is not verified yet: anyone who files a request can choose
// it. An implementation contacts only hosts that it was configured with, follows no redirects to
// others, and sets its own time limits. The result is not trusted: it must chain to a root like any
// certificate.
type IssuerFetcher interface {
	// FetchIssuer returns the content at that URL, at most 64 KiB, or nil if it does not contact
	// it: a certificate in DER, a certs-only PKCS#7 message with up to 16 of them, or either in
	// PEM. Other content, and certificates of another issuer, are passed over, and the refusal says
	// so. An error means that the request will be retried. It is called from multiple
	// goroutines. For one request, all fetchers together are called at most 16 times: each at most
	// once for a URL, and no more once one of them has returned the issuer's certificate.
	FetchIssuer(ctx context.Context, url string) ([]byte, error)
}

// fetchID is a URL that a fetcher has been asked to fetch.
type fetchID struct {
	fetcher int // the first of the issuers with that fetcher
	url     string
}

// sharedFetcher returns the index of the first issuer that has the same fetcher, or n if no
// earlier one has it or fetchers of that type cannot be compared.
func sharedFetcher(issuers []*ekIssuer, n int, f IssuerFetcher) int {
	if reflect.ValueOf(f).Comparable() {
		if first := slices.IndexFunc(issuers, func(i *ekIssuer) bool { return i.Fetcher == f }); first >= 0 {
			return first
		}
	}
	return n
}

// fetch fetches the certificate of cert's issuer, and reports whether it got one that is new
// to the request. A nil cert has no issuer to fetch.
func (i *ekIssuer) fetch(ctx context.Context, w *links, cert *certificate) (bool, error) {
	if cert == nil || i.Fetcher == nil || len(w.fetched) == maxFetched {
		return false, nil
	}
	for n, url := range cert.IssuingCertificateURL[:min(len(cert.IssuingCertificateURL), maxIssuerURLs)] {
		id := fetchID{i.fetcherID, url}
		if len(url) > maxURLSize || slices.Contains(w.asked, id) {
			continue
		}
		found, err := i.fetchOnce(ctx, w, id, cert)
		if err != nil {
			return false, err
		}
		if found != nil && w.addFetched(found, cert, n+1) {
			return true, nil
		}
	}
	return false, nil
}

// fetchOnce calls the fetcher for one URL of cert, within the request's budget.
func (i *ekIssuer) fetchOnce(ctx context.Context, w *links, id fetchID, cert *certificate) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, refusal.Retry(fmt.Errorf("stopped before a fetch: %w", err))
	}
	if len(w.asked) == maxIssuerFetches {
		return nil, message.OverBudget("fetches of issuers' certificates", maxIssuerFetches)
	}
	w.asked = append(w.asked, id)
	found, err := i.Fetcher.FetchIssuer(ctx, id.url)
	if err != nil {
		return nil, refusal.Retry(fmt.Errorf("issuer certificate of %s: %w", refusal.Text(nameText(cert.Issuer)), err))
	}
	return found, nil
}

// addFetched adds the certificates in found that fit cert's issuer, and reports whether one is new.
// If none fits, it notes the reason, with place, the number of the URL in cert.
func (w *links) addFetched(found []byte, cert *certificate, place int) bool {
	issuers, err := usableIssuers(found, cert)
	if err != nil {
		w.dropped = append(w.dropped, fmt.Sprintf("of %s, from place %d: %v", refusal.Text(nameText(cert.Issuer)), place, err))
		return false
	}
	known := len(w.fetched)
	for _, c := range issuers[:min(len(issuers), maxFetched)] {
		if len(w.fetched) < maxFetched && !slices.ContainsFunc(w.fetched, func(f *certificate) bool { return f.Equal(c.Certificate) }) {
			w.fetched = append(w.fetched, c)
		}
	}
	return len(w.fetched) > known
}

// usableIssuers parses fetched certificates and returns the ones of cert's issuer, by name and key
// identifier. If none is left, the error describes the last one.
func usableIssuers(found []byte, cert *certificate) ([]*certificate, error) {
	all, err := caissuers.Certificates(found)
	if err != nil {
		return nil, err
	}
	var usable []*certificate
	for _, der := range all {
		c, problem := parseCertificate(der, "a certificate")
		switch {
		case problem != nil:
			err = problem
		case !dn.NamesIssuer(cert.Certificate, c.Certificate):
			err = errors.New("a certificate of " + refusal.Text(nameText(c.Subject)) + ", with another name or key identifier")
		default:
			usable = append(usable, caOf(c.Certificate, false))
		}
	}
	if len(usable) == 0 {
		return nil, err
	}
	return usable, nil
}
