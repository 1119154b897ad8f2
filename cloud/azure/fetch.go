package azure

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/internal/caissuers"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits on fetching.
const (
	maxFetches      = 4 // calls for one document, and therefore intermediates
	maxURLSize      = 512
	maxFetchedSize  = 16 << 10
	maxFetching     = 4                // documents at once
	documentTimeout = 10 * time.Second // all calls for one document
	maxKept         = 64               // intermediates
	keptFor         = 24 * time.Hour
)

var errBusy = errors.New("issuers are being fetched for " + strconv.Itoa(maxFetching) + " other documents")

// fetched are the intermediates that were fetched for documents under which a document's
// certificate then verified. Nothing else is kept: strangers choose where to fetch from.
type fetched struct {
	busy chan struct{} // an element for each document under way

	mu   sync.Mutex
	kept []kept // the oldest first
}

type kept struct {
	certificate *x509.Certificate
	at          time.Time
}

// pool returns the intermediates that are valid at a time.
func (f *fetched) pool(now time.Time) chain.Pool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*x509.Certificate
	for _, k := range f.kept {
		if now.Sub(k.at).Abs() < keptFor && chain.CheckTime(k.certificate, now) == nil {
			list = append(list, k.certificate)
		}
	}
	return chain.NewPool(list)
}

// keep adds certificates that have verified at a time.
func (f *fetched) keep(certificates []*x509.Certificate, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range certificates {
		f.kept = slices.DeleteFunc(f.kept, func(k kept) bool { return k.certificate.Equal(c) })
		f.kept = append(f.kept, kept{c, now})
	}
	f.kept = slices.Delete(f.kept, 0, max(0, len(f.kept)-maxKept))
}

// fetch gets the missing intermediates of a leaf, one after the other, and returns the
// resulting chains and the fetched certificates.
func (v *Verifier) fetch(ctx context.Context, leaf *x509.Certificate, now time.Time) ([][]*x509.Certificate, chain.Pool, error) {
	select {
	case v.fetched.busy <- struct{}{}:
		defer func() { <-v.fetched.busy }()
	default:
		return nil, nil, refusal.Retry(errBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	known, calls := v.fetched.pool(now), 0
	got := chain.Pool{}
	for {
		paths, missing := chain.Paths(leaf, v.roots, now, v.configured(now), known, got)
		if len(paths) > 0 {
			return paths, got, nil
		}
		issuers, dropped, err := v.fetchOne(ctx, missing, &calls)
		if err != nil {
			return nil, nil, err
		}
		subject := dn.Key(missing.RawIssuer)
		if issuers == nil || len(got[subject]) > 0 {
			return nil, nil, unknownIssuer(missing, dropped...)
		}
		got[subject] = issuers
	}
}

// fetchOne gets the certificates of the issuer of one certificate from the first of its URLs
// that has them, or returns nil, and a text about each unfit certificate. A body without one may be
// an error page that passes, so it is an error.
func (v *Verifier) fetchOne(ctx context.Context, c *x509.Certificate, calls *int) (issuers []*x509.Certificate, dropped []string, err error) {
	var failed error
	for n, url := range c.IssuingCertificateURL {
		if len(url) > maxURLSize {
			continue
		}
		if *calls == maxFetches {
			break
		}
		*calls++
		if err := ctx.Err(); err != nil {
			return nil, nil, refusal.Retry(err)
		}
		found, err := v.fetchIssuer(ctx, url)
		if err == nil && found == nil {
			continue
		}
		var all []*x509.Certificate
		if err == nil {
			all, err = parseFetched(found)
		}
		if err != nil {
			failed = err
			continue
		}
		other := func(issuer *x509.Certificate) bool { return !chain.Issued(c, issuer) }
		if issuers = slices.DeleteFunc(slices.Clone(all), other); len(issuers) > 0 {
			return issuers, nil, nil
		}
		dropped = append(dropped, fmt.Sprintf("URL %d has the certificate of %s, which is not a CA, or has another name or key identifier", n+1, chain.Name(all[0].RawSubject)))
	}
	if failed != nil {
		return nil, nil, refusal.Retry(fmt.Errorf("azure: the certificate of the issuer %s: %w", chain.Name(c.RawIssuer), failed))
	}
	return nil, dropped, nil
}

// parseFetched reads the body from a URL: at least one certificate.
func parseFetched(found []byte) ([]*x509.Certificate, error) {
	if len(found) > maxFetchedSize {
		return nil, errors.New("more than " + strconv.Itoa(maxFetchedSize) + " bytes instead of a certificate")
	}
	all, err := caissuers.Certificates(found)
	if err != nil {
		return nil, fmt.Errorf("the response is not a certificate: %w", err)
	}
	var parsed []*x509.Certificate
	for _, der := range all {
		c, err := chain.Parse(der)
		if err != nil {
			return nil, errors.New("the response has a certificate that cannot be parsed")
		}
		parsed = append(parsed, c)
	}
	return parsed, nil
}
