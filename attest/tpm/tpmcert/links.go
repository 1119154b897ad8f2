package tpmcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/work"
)

// What one request may cost, whoever sends it and however many issuers there are.
//
// Every public-key operation is counted ([attest.Budget]). A signature is checked only
// under a key that is RSA of 2048 to [MaxRSABits] bits with the exponent 65537, or on
// P-256, P-384 or P-521. A chain is put together by names first, and everything that
// its certificates say is held against it: encoding, order, validity, constraints,
// usages, kinds of key and hash. Only a chain that then ends at a root costs
// signatures, and they are checked from the root down, so that no signature is ever
// checked under a CA key that the sender chose. What has been verified is remembered, of
// intermediates and of machines' certificates, and costs nothing the next time.
//
// Beside signatures a hello costs one encryption to its EK (RSAES-OAEP, or one key
// generation and one key agreement) on [attest.RoadEK], and hello and answer the division of
// one RSA modulus by 16 small primes (ROCA).
const (
	// MaxRSABits is the size of the largest RSA keys.
	MaxRSABits = statement.MaxRSABits
	// MaxChainLinks bounds the signatures of one chain, root's own left out: a chain
	// has at most one certificate more, its root among them. The longest known chain of a
	// vendor has three links. Those of intermediates are checked a second time, by
	// crypto/x509, where a CA has constraints on names or policies.
	MaxChainLinks = work.MaxChainLinks
	// MaxFailedLinks bounds the signatures in chains that turn out to be wrong: after so
	// many no other is checked. Only CAs that share a name, and certificates that do
	// not say which of them is meant, need more than none.
	MaxFailedLinks = work.MaxFailedLinks
	// MaxIssuerFetches bounds the calls of all [IssuerFetcher] together.
	MaxIssuerFetches = 16

	// maxSearchSteps bounds the certificates that are looked at while a chain is put
	// together, which costs no signature.
	maxSearchSteps = 1024
)

// links is what the certificates of one request have cost so far, and what is known of
// them. It belongs to one request and one goroutine.
type links struct {
	*attest.Budget
	links  int // signatures in chains
	failed int // of the links, those that did not hold

	steps   int
	fetches int

	checked []checkedLink
	fetched []*certificate // issuers, from wherever a fetcher got them
	asked   []fetchID      // URLs that need not be asked for again
}

// checkedLink is the outcome of a link.
type checkedLink struct {
	cert *x509.Certificate
	key  []byte // that made the signature, as SubjectPublicKeyInfo
	err  error
}

func newLinks(b *attest.Budget) *links {
	if b == nil {
		b = work.New(MaxChainLinks + MaxFailedLinks)
	}
	return &links{Budget: b, checked: make([]checkedLink, 0, 2)} // most chains have two signatures
}

// step counts one certificate that is looked at.
func (w *links) step() error {
	if w.steps >= maxSearchSteps {
		return work.Over("certificates on the way to a root", maxSearchSteps)
	}
	w.steps++
	return nil
}

// link checks that issuer signed cert, a machine's or a CA's, once for a request, and not at
// all where that is remembered. What can be said without a public-key operation has been said.
func (w *links) link(ctx context.Context, known *linkMemory, cert, issuer *certificate, leaf bool) error {
	same := func(c checkedLink) bool {
		return c.cert.Equal(cert.Certificate) && bytes.Equal(c.key, issuer.RawSubjectPublicKeyInfo)
	}
	if n := slices.IndexFunc(w.checked, same); n >= 0 {
		return w.checked[n].err
	}
	var id leafLink
	if leaf {
		id = leafLinkOf(cert, issuer)
	}
	if leaf && known.hasLeaf(id) || !leaf && known.has(cert, issuer) {
		return nil
	}
	if w.failed >= MaxFailedLinks {
		return work.Over("wrong signatures in chains", MaxFailedLinks)
	}
	if w.links >= MaxChainLinks+MaxFailedLinks {
		return work.Over("signatures in chains", MaxChainLinks+MaxFailedLinks)
	}
	if err := w.Signature(ctx); err != nil {
		return err
	}
	w.links++
	err := checkLink(cert, issuer)
	switch {
	case err != nil:
		w.failed++
	case leaf:
		known.addLeaf(id)
	default:
		known.add(cert, issuer)
	}
	w.checked = append(w.checked, checkedLink{cert.Certificate, issuer.RawSubjectPublicKeyInfo, err})
	return err
}
