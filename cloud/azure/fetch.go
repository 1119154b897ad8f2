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
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits on what is fetched.
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

// pool are those that are still good at a time.
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
// resulting chains and what was fetched.
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
		issuer, err := v.fetchOne(ctx, missing, &calls)
		if err != nil {
			return nil, nil, err
		}
		subject := string(missing.RawIssuer)
		if issuer == nil || len(got[subject]) > 0 {
			return nil, nil, unknownIssuer(missing)
		}
		got[subject] = append(got[subject], issuer)
	}
}

// fetchOne gets the issuer of one certificate from the first of its URLs that has it, or
// returns nil if none has. What is no certificate may be a page that is there for a while.
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
		if err == nil && der == nil {
			continue
		}
		var issuer *x509.Certificate
		if err == nil {
			issuer, err = parseFetched(der)
		}
		switch {
		case err != nil:
			failed = err
		case chain.Issued(c, issuer):
			return issuer, nil
		}
	}
	if failed != nil {
		return nil, refusal.Retry(fmt.Errorf("azure: the certificate of the issuer %s: %w", chain.Name(c.RawIssuer), failed))
	}
	return nil, nil
}

// parseFetched reads what was found at a URL.
func parseFetched(der []byte) (*x509.Certificate, error) {
	if len(der) > maxFetchedSize {
		return nil, errors.New("more than " + strconv.Itoa(maxFetchedSize) + " bytes in the place of a certificate")
	}
	c, err := chain.Parse(der)
	if err != nil {
		return nil, errors.New("something else in the place of a certificate")
	}
	return c, nil
}
