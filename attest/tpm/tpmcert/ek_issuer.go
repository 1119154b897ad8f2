package tpmcert

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/oid"
)

// ekIssuer is an EKIssuer made ready.
type ekIssuer struct {
	*anchors
	profile    EKProfile
	crls       *CRLStore
	requireCRL bool
	fetcher    IssuerFetcher
	fetcherID  int // of the issuers with the same fetcher, the first
	trusted    []*x509.Certificate
	helpers    []*x509.Certificate
	checked    atomic.Pointer[checkedLists]
}

func newEKIssuer(i *EKIssuer, known *linkMemory) (*ekIssuer, error) {
	if err := checkEKProfile(&i.Profile); err != nil {
		return nil, err
	}
	if i.RequireCRL && i.CRLs == nil {
		return nil, errors.New("RequireCRL without CRLs")
	}
	if i.RequireCRL && i.Profile.InsecureAllowExpiredEK {
		return nil, errors.New("RequireCRL with InsecureAllowExpiredEK: lists drop certificates that have expired")
	}
	a, err := newAnchors(i.Roots, i.Intermediates, known)
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
	ekNoIssuer   = iota                        // the chain leads nowhere
	ekUnknown                                  // it might lead on, which could not be found out
	ekBadChain                                 // it leads to a root, and something in it does not hold
	ekOverBudget                               // it was not looked for to the end
	ekBadLeaf                                  // the chain holds, the certificate does not fit the profile
	ekWithdrawn  = ekBadLeaf + ekProfileChecks // all holds, and it is revoked or that cannot be told
)

// verifyEK fills the facts if the certificate holds under this issuer.
func (i *ekIssuer) verifyEK(ctx context.Context, w *links, p *EKPresented, facts *EKFacts, now time.Time) *ekRefusal {
	leaf := p.cert.Certificate
	var used []string
	at := now
	if i.profile.InsecureAllowExpiredEK && now.After(leaf.NotAfter) {
		at = leaf.NotAfter
		used = append(used, "InsecureAllowExpiredEK")
	}
	chain, sha1, refusal := i.chainOf(ctx, w, p, at)
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

// chainOf finds a chain that holds at the time at, with the certificates that a fetcher
// gets where those at hand do not suffice.
func (i *ekIssuer) chainOf(ctx context.Context, w *links, p *EKPresented, at time.Time) ([]*x509.Certificate, bool, *ekRefusal) {
	leaf := p.cert.Certificate
	if unknown := leaf.UnhandledCriticalExtensions; len(unknown) > 0 {
		return nil, false, &ekRefusal{ekBadChain, &Error{Check: CheckCertificateExtension,
			Got: "critical extension " + unknown[0].String(), Want: "critical extensions that are understood"}}
	}
	above, err := p.parseAbove(i.known)
	if err != nil {
		return nil, false, &ekRefusal{ekNoIssuer, err}
	}
	search := chainSearch{anchors: i.anchors, work: w, at: at, usages: []oid.OID{oid.TCGKpEKCertificate},
		allowSHA1: i.profile.InsecureAllowSHA1Links, sha1Tolerance: ", or the tolerance InsecureAllowSHA1Links"}
	if err := checkValidity(leaf, at); err != nil {
		// Where the issuer is none of ours by its name, that says more.
		search.namesOnly, search.allowSHA1 = true, true
		if _, failure := search.run(ctx, p.leaf, above); failure != nil {
			return nil, false, failure.refusal()
		}
		return nil, false, &ekRefusal{ekBadChain, err}
	}
	for {
		chain, failure := search.run(ctx, p.leaf, above)
		if failure == nil {
			return plain(chain), usedSHA1(chain), nil
		}
		if failure.missing == nil {
			return nil, false, failure.refusal()
		}
		more, err := i.fetch(ctx, w, failure.missing)
		switch {
		case errors.Is(err, attest.CheckBudget):
			return nil, false, &ekRefusal{ekOverBudget, err}
		case err != nil:
			return nil, false, &ekRefusal{ekUnknown, err}
		}
		if !more {
			return nil, false, failure.refusal()
		}
	}
}

func (f *chainFailure) refusal() *ekRefusal {
	switch {
	case f.missing != nil:
		return &ekRefusal{ekNoIssuer, f.err}
	case errors.Is(f.err, attest.CheckBudget):
		return &ekRefusal{ekOverBudget, f.err}
	}
	return &ekRefusal{ekBadChain, f.err}
}
