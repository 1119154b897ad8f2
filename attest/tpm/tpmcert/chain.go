package tpmcert

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// chainSearch finds a chain from a leaf, through as many of the certificates that came with it
// as that takes, to a root, which need not be self-signed. It checks names, key identifiers, validity, basic constraints, path length, key
// usage, extended key usages, critical extensions, hashes and kinds of key (RFC 5280, 6.1)
// first, and signatures last, from the root down. Constraints that depend on the leaf are
// left to crypto/x509, which does not verify links over SHA-1.
type chainSearch struct {
	*anchors
	work          *links
	at            time.Time
	usages        []oid.OID // of the leaf; the CAs must allow one of them
	allowSHA1     bool
	sha1Tolerance string // how an error mentions the tolerance
	namesOnly     bool   // check neither signatures nor validity: only to explain a failure
	failure       chainFailure
	stopped       error // why the search stops: over budget, or given up
}

// chainFailure is why no chain was found: of all the dead ends, the one highest above the
// leaf.
type chainFailure struct {
	depth   int
	missing *certificate // the certificate whose issuer is unknown, or nil
	err     error
	// reached says that err is about a root that is below missing.
	reached bool
}

// without adds the useless fetched certificates to the reason why there is no chain.
func (f *chainFailure) without(dropped []string) *chainFailure {
	if e, ok := errors.AsType[*refusal.Error](f.err); ok && f.missing != nil && e.Err == nil && len(dropped) > 0 {
		with := *e
		with.Err = errors.New("fetched in vain: " + strings.Join(dropped, "; "))
		f.err = &with
	}
	return f
}

// run returns the first valid chain, leaf first and root last.
func (s *chainSearch) run(ctx context.Context, leaf *certificate, above []*certificate) ([]*certificate, *chainFailure) {
	if s.stopped = s.work.Work(ctx, stepWork); s.stopped != nil {
		return nil, &chainFailure{err: s.stopped}
	}
	s.failure = chainFailure{}
	// A search looks at one chain at a time, so a single array serves them all.
	chain, usages := append(make([]*certificate, 0, message.MaxChainLinks+1), leaf), s.usages
	for _, c := range above {
		if whole := s.anchored(ctx, chain, usages); whole != nil {
			return whole, nil // certificates above a root are ignored
		}
		if usages = s.step(ctx, chain, usages, c); usages == nil {
			break
		}
		chain = append(chain, c)
	}
	below := s.failure.err
	var whole []*certificate
	if usages != nil {
		whole = s.extend(ctx, chain, usages)
	} else {
		s.fail(1, nil, CheckCertificateChain.Refuse("a key identifier of another issuer", "that of the next certificate"))
	}
	switch missing := s.failure.missing; {
	case s.stopped != nil:
		return nil, &chainFailure{err: s.stopped}
	case whole != nil:
		return whole, nil
	case missing != nil && below != nil:
		s.failure.err, s.failure.reached = below, true
	case missing != nil:
		s.failure.err = CheckCertificateChain.Refuse("a chain that ends at issuer "+nameText(missing.Issuer),
			"one of the roots, or an intermediate that leads there")
	}
	return nil, new(s.failure)
}

// fail records a dead end, unless a higher one is known.
func (s *chainSearch) fail(depth int, missing *certificate, err error) {
	if depth > s.failure.depth || depth == s.failure.depth && s.failure.missing != nil && missing == nil {
		s.failure = chainFailure{depth: depth, missing: missing, err: err}
	}
}

// extend tries every possible issuer on top of the chain, roots first.
func (s *chainSearch) extend(ctx context.Context, chain []*certificate, usages []oid.OID) []*certificate {
	top := chain[len(chain)-1]
	s.fail(len(chain), top, nil)
	if len(chain) > message.MaxChainLinks {
		s.fail(len(chain), nil, CheckCertificateChain.Refuse("a chain of over "+strconv.Itoa(message.MaxChainLinks)+" links",
			"at most "+strconv.Itoa(message.MaxChainLinks)))
		return nil
	}
	if whole := s.anchored(ctx, chain, usages); whole != nil {
		return whole
	}
	for _, from := range [...][]*certificate{s.intermediates[top.issuer], s.work.fetched} {
		for _, c := range from {
			if c.subject == c.issuer {
				continue // a root that is not one of ours
			}
			if next := s.step(ctx, chain, usages, c); next != nil {
				if whole := s.extend(ctx, append(chain, c), next); whole != nil {
					return whole
				}
			}
		}
	}
	return nil
}

// anchored returns the chain with the first root on top that certified its last certificate.
func (s *chainSearch) anchored(ctx context.Context, chain []*certificate, usages []oid.OID) []*certificate {
	if len(chain) > message.MaxChainLinks {
		return nil
	}
	for _, root := range s.roots[chain[len(chain)-1].issuer] {
		if s.step(ctx, chain, usages, root) == nil {
			continue
		}
		if whole := append(chain, root); s.signed(ctx, whole) {
			return whole
		}
	}
	return nil
}

// step reports whether the issuer may have certified the top of the chain, by everything that
// can be checked without the signature. It returns the usages that remain, or nil if this
// issuer is a dead end.
func (s *chainSearch) step(ctx context.Context, chain []*certificate, usages []oid.OID, issuer *certificate) []oid.OID {
	top := chain[len(chain)-1]
	if s.stopped != nil {
		return nil
	}
	if s.stopped = s.work.Work(ctx, stepWork+len(chain)*len(top.RawIssuer)+len(usages)*len(issuer.usages)); s.stopped != nil {
		return nil
	}
	if top.issuer != issuer.subject || !dn.SameKeyIdentifier(top.Certificate, issuer.Certificate) ||
		issuer.Equal(chain[0].Certificate) || slices.ContainsFunc(chain[1:], issuer.sameSubject) {
		return nil
	}
	left, err := s.checkStep(chain, usages, issuer)
	if err != nil {
		s.fail(len(chain), nil, err)
		return nil
	}
	return left
}

func (c *certificate) sameSubject(other *certificate) bool { return c.subject == other.subject }

func (s *chainSearch) checkStep(chain []*certificate, usages []oid.OID, issuer *certificate) ([]oid.OID, error) {
	top := chain[len(chain)-1]
	if issuer.unfit != nil {
		return nil, issuer.unfit
	}
	if !s.namesOnly {
		if err := checkValidity(issuer.Certificate, s.at); err != nil {
			return nil, inCertificate(issuer.Certificate, err)
		}
	}
	below := len(chain) - 1 // intermediates
	if issuer.BasicConstraintsValid && (issuer.MaxPathLen > 0 || issuer.MaxPathLenZero) && below > issuer.MaxPathLen {
		return nil, inCertificate(issuer.Certificate, CheckCertificateChain.Refuse("a path length that is too short",
			"that of a CA"))
	}
	if err := checkLinkForm(top, issuer, s.allowSHA1, s.sha1Tolerance); err != nil {
		return nil, err
	}
	if issuer.usages == nil {
		return usages, nil
	}
	left := slices.DeleteFunc(slices.Clone(usages), func(id oid.OID) bool { return !slices.Contains(issuer.usages, id) })
	if len(left) == 0 {
		return nil, inCertificate(issuer.Certificate, checkCertificateExtKeyUsage.Refuse("a limit to the extended key usages "+usagesText(issuer.usages),
			usagesText(usages)))
	}
	return left, nil
}

// signed checks the signatures of a chain from the root down, so that each is checked under a
// key that is already trusted.
func (s *chainSearch) signed(ctx context.Context, chain []*certificate) bool {
	if s.namesOnly {
		return true
	}
	constrained := slices.IndexFunc(chain[1:], func(c *certificate) bool { return c.constrained }) + 1
	if constrained > 0 && usedSHA1(chain) {
		s.fail(len(chain), nil, inCertificate(chain[constrained].Certificate, CheckCertificateChain.Refuse("constraints on names or policies, which are not checked together with SHA-1,",
			"none")))
		return false
	}
	lowest := 0
	if constrained > 0 {
		lowest = 1 // crypto/x509 checks the leaf's signature
	}
	for n := len(chain) - 2; n >= lowest; n-- {
		err := s.work.link(ctx, s.known, chain[n], chain[n+1], n == 0)
		switch {
		case err == nil:
		case errors.Is(err, attest.CheckBudget) || errors.Is(err, refusal.ErrRetry):
			s.stopped = err
			return false
		case err != nil:
			s.fail(len(chain), nil, err) // it reached a root
			return false
		}
	}
	return constrained == 0 || s.confirm(ctx, chain)
}

// confirm has crypto/x509 verify a chain with constraints that depend on the leaf. That
// checks each signature again.
func (s *chainSearch) confirm(ctx context.Context, chain []*certificate) bool {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: s.at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	spelled := dn.OneSpelling(plain(chain))
	o.Roots.AddCert(spelled[len(chain)-1])
	for _, c := range spelled[1 : len(chain)-1] {
		o.Intermediates.AddCert(c)
	}
	for n := range chain[1:] {
		if s.stopped = cmp.Or(s.work.Work(ctx, chain[n].work), s.work.Signature(ctx)); s.stopped != nil {
			return false
		}
	}
	if _, err := spelled[0].Verify(o); err != nil {
		s.fail(len(chain), nil, &refusal.Error{Check: CheckCertificateChain, Got: "a chain that does not verify", Err: err})
		return false
	}
	return true
}

// usedSHA1 reports whether a link of the chain is over SHA-1. The root's own signature is
// never checked.
func usedSHA1(chain []*certificate) bool {
	return slices.ContainsFunc(chain[:len(chain)-1], func(c *certificate) bool { return c.SignatureAlgorithm == x509.SHA1WithRSA })
}

// plain returns the chain as crypto/x509 represents it.
func plain(chain []*certificate) []*x509.Certificate {
	out := make([]*x509.Certificate, len(chain))
	for n, c := range chain {
		out[n] = c.Certificate
	}
	return out
}
