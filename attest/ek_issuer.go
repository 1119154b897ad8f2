package attest

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// ekIssuer is an EKIssuer made ready.
type ekIssuer struct {
	*anchors
	profile    EKProfile
	trusted    []*x509.Certificate
	helpers    []*x509.Certificate
	crls       *CRLStore
	requireCRL bool
	fetcher    IssuerFetcher
	checked    atomic.Pointer[checkedLists]
}

func newEKIssuer(i *EKIssuer) (*ekIssuer, error) {
	if err := checkEKProfile(&i.Profile); err != nil {
		return nil, err
	}
	if i.RequireCRL && i.CRLs == nil {
		return nil, errors.New("RequireCRL without CRLs")
	}
	if i.RequireCRL && i.Profile.InsecureAllowExpiredEK {
		return nil, errors.New("RequireCRL with InsecureAllowExpiredEK: lists drop certificates that have expired")
	}
	a, err := newAnchors(i.Roots, i.Intermediates)
	if err != nil {
		return nil, err
	}
	made := &ekIssuer{anchors: a, profile: i.Profile.clone(), trusted: slices.Clone(i.Roots), helpers: slices.Clone(i.Intermediates),
		crls: i.CRLs, requireCRL: i.RequireCRL, fetcher: i.Fetcher}
	if i.CRLs == nil {
		return made, nil
	}
	if _, err := made.lists(); err != nil {
		return nil, err
	}
	return made, nil
}

// ekRefusal is why one issuer refused, and how far it came: the error of the issuer
// that came furthest is the one that helps.
type ekRefusal struct {
	progress int
	err      error
}

const (
	ekNoIssuer  = iota                        // the chain leads nowhere
	ekBadChain                                // it leads to a root, and something in it does not hold
	ekBadLeaf                                 // the chain holds, the certificate does not fit the profile
	ekWithdrawn = ekBadLeaf + ekProfileChecks // all holds, and it is revoked or that cannot be told
)

// verifyEK fills the facts if the certificate holds under this issuer.
func (i *ekIssuer) verifyEK(ctx context.Context, p *presentedEK, facts *EKFacts, now time.Time) *ekRefusal {
	leaf := p.cert.Certificate
	var used []string
	at := now
	if i.profile.InsecureAllowExpiredEK && now.After(leaf.NotAfter) {
		at = leaf.NotAfter
		used = append(used, "InsecureAllowExpiredEK")
	}
	chain, sha1, refusal := i.chainOf(ctx, p, at)
	if refusal != nil {
		return refusal
	}
	if passed, err := i.profile.check(p.cert); err != nil {
		return &ekRefusal{ekBadLeaf + passed, err}
	}
	if sha1 {
		used = append(used, "InsecureAllowSHA1Links")
	}
	facts.Source = EKFromCertificate
	facts.Profile = i.profile.Name
	facts.Chain = chain
	facts.Directory = p.cert.Directory
	facts.Specification = p.cert.Specification
	facts.Tolerances = append(i.profile.usedBy(p.cert), used...)
	return nil
}

// chainOf finds a chain that holds at the time at: through crypto/x509 where it can,
// else with the certificates that a fetcher gets, and with links over SHA-1 where the
// profile lets them through.
func (i *ekIssuer) chainOf(ctx context.Context, p *presentedEK, at time.Time) ([]*x509.Certificate, bool, *ekRefusal) {
	leaf := p.cert.Certificate
	if unknown := leaf.UnhandledCriticalExtensions; len(unknown) > 0 {
		return nil, false, &ekRefusal{ekBadChain, &Error{Check: CheckCertificateExtension,
			Got: "critical extension " + unknown[0].String(), Want: "critical extensions that are understood"}}
	}
	if err := checkValidity(leaf, at); err != nil {
		return nil, false, i.unlessUnknown(p, at, err)
	}
	chain, err := i.verify(&presented{leaf: leaf, above: p.above, san: p.cert.san}, at)
	if err == nil {
		return chain, false, nil
	}
	if errors.Is(err, CheckCertificateEncoding) || errors.Is(err, CheckCertificateOrder) {
		return nil, false, &ekRefusal{ekNoIssuer, err}
	}
	search := i.newSearch(p, at)
	for depth := 0; ; depth++ {
		chain, failure := search.run(leaf, i.profile.InsecureAllowSHA1Links)
		if failure == nil {
			return chain, search.sha1, nil
		}
		if i.fetcher == nil || failure.missing == nil || depth == maxFetched {
			return nil, false, failure.refusal()
		}
		fetched, err := fetchIssuer(ctx, i.fetcher, failure.missing)
		if err != nil {
			return nil, false, &ekRefusal{ekNoIssuer, csr.Retry(err)}
		}
		if fetched == nil {
			return nil, false, failure.refusal()
		}
		search.candidates = append(search.candidates, fetched)
	}
}

// unlessUnknown keeps the error of a certificate outside its validity where the issuer
// is one of ours, so that it wins over the errors of issuers that have nothing to do
// with it.
func (i *ekIssuer) unlessUnknown(p *presentedEK, at time.Time, err error) *ekRefusal {
	search := i.newSearch(p, at)
	search.anyTime = true
	if _, failure := search.run(p.cert.Certificate, true); failure != nil {
		return failure.refusal()
	}
	return &ekRefusal{ekBadChain, err}
}
