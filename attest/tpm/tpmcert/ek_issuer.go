package tpmcert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/oid"
)

// ekIssuer is an EKIssuer prepared for use.
type ekIssuer struct {
	EKIssuer
	*anchors
	fetcherID int // the first of the issuers with the same fetcher
	checked   atomic.Pointer[checkedLists]
}

func newEKIssuer(i EKIssuer, known *linkMemory) (*ekIssuer, error) {
	a, err := newAnchors(i.Roots, i.Intermediates, known)
	if err = cmp.Or(i.check(), err); err != nil {
		return nil, err
	}
	i.Roots, i.Intermediates = slices.Clone(i.Roots), slices.Clone(i.Intermediates)
	i.Profile.Extensions, i.Profile.Projects = slices.Clone(i.Profile.Extensions), slices.Clone(i.Profile.Projects)
	made := &ekIssuer{EKIssuer: i, anchors: a}
	if i.CRLs != nil {
		if _, err := made.lists(); err != nil && !errors.Is(err, errCRLEmpty) {
			return nil, err
		}
	}
	return made, nil
}

// check refuses what decides nothing, or cannot be decided.
func (i *EKIssuer) check() error {
	p := &i.Profile
	switch {
	case p.Name == "":
		return errors.New("a profile without a name")
	case p.NoExtKeyUsage && p.NoKeyUsage && p.NoDirectoryName:
		return fmt.Errorf("profile %s asks for nothing that tells an EK certificate from others", p.Name)
	case i.RequireCRL && i.CRLs == nil:
		return errors.New("RequireCRL without CRLs")
	case i.RequireCRL && p.InsecureAllowExpiredEK:
		return errors.New("RequireCRL with InsecureAllowExpiredEK: lists drop certificates that have expired")
	}
	return checkIDs(p.Name, p.Extensions, p.Projects)
}

// ekRefusal is why one issuer refused, and how far it got: the error of the issuer that got
// furthest is the most useful one.
type ekRefusal struct {
	progress int
	err      error
}

const (
	ekNoIssuer   = iota                        // the chain leads nowhere
	ekUnknown                                  // it might lead on, but that could not be determined
	ekBadChain                                 // it leads to a root, but something in it is invalid
	ekOverBudget                               // the search was not completed
	ekBadLeaf                                  // the chain is valid, but the certificate does not match the profile
	ekWithdrawn  = ekBadLeaf + ekProfileChecks // all is valid, but it is revoked, or that is unknown
)

// verifyEK returns the facts if the certificate, with those above it, is valid under this issuer.
func (i *ekIssuer) verifyEK(ctx context.Context, w *links, p *EKPresented, above []*certificate,
	now time.Time) (*EKFacts, *ekRefusal) {
	at := now
	if i.Profile.InsecureAllowExpiredEK && now.After(p.leaf.NotAfter) {
		at = p.leaf.NotAfter
	}
	chain, refusal := i.chainOf(ctx, w, p.leaf, above, at)
	if refusal != nil {
		return nil, refusal
	}
	if passed, err := i.Profile.check(&p.ek); err != nil {
		return nil, &ekRefusal{ekBadLeaf + passed, err}
	}
	facts := p.facts(EKFromCertificate)
	facts.Profile = i.Profile.Name
	facts.Chain = plain(chain)
	facts.Directory = p.ek.Directory
	facts.Specification = p.ek.Specification
	facts.Tolerances = tolerancesOf(&p.ek, chain, at.Before(now))
	return facts, nil
}

// chainOf finds a chain that is valid at the time at, with a fetcher's certificates if the
// ones already available do not suffice.
func (i *ekIssuer) chainOf(ctx context.Context, w *links, leaf *certificate, above []*certificate,
	at time.Time) ([]*certificate, *ekRefusal) {
	search := chainSearch{anchors: i.anchors, work: w, at: at, usages: []oid.OID{oid.TCGKpEKCertificate},
		allowSHA1: i.Profile.InsecureAllowSHA1Links, sha1Tolerance: ", or the tolerance InsecureAllowSHA1Links"}
	if err := checkValidity(leaf.Certificate, at); err != nil {
		// If the issuer, by its name, is not one of ours, that is the more useful error.
		search.namesOnly, search.allowSHA1 = true, true
		if _, failure := search.run(ctx, leaf, above); failure != nil {
			return nil, failure.refusal()
		}
		return nil, &ekRefusal{ekBadChain, err}
	}
	for {
		chain, failure := search.run(ctx, leaf, above)
		if failure == nil {
			return chain, nil
		}
		more, err := i.fetch(ctx, w, failure.missing)
		switch {
		case errors.Is(err, attest.CheckBudget):
			return nil, &ekRefusal{ekOverBudget, err}
		case err != nil:
			return nil, &ekRefusal{ekUnknown, err}
		case !more:
			return nil, failure.without(w.dropped).refusal()
		}
	}
}

func (f *chainFailure) refusal() *ekRefusal {
	switch {
	case f.missing != nil && !f.reached:
		return &ekRefusal{ekNoIssuer, f.err}
	case errors.Is(f.err, attest.CheckBudget):
		return &ekRefusal{ekOverBudget, f.err}
	}
	return &ekRefusal{ekBadChain, f.err}
}
