package tpmcert

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/message"
)

// The limits on the cost of one request, for every requester and any number of issuers there
// are; the others are message.MaxChainLinks and message.MaxFailedLinks.
//
// Every public-key operation is counted ([attest.Budget]). A signature is checked only under
// a key that is RSA of 2048 to 4096 bits with the exponent 65537, or on P-256, P-384 or
// P-521. A chain is first built by name, and everything that its certificates say is checked:
// encoding, order, validity, constraints, usages, kinds of key and hash. Only a chain that
// then ends at a root costs signatures, and they are checked from the root down, so that no
// signature is ever checked under a CA key that the sender chose. Verified signatures of
// intermediates and of machines' certificates are remembered, and cost nothing the next time.
//
// Reading certificates and building chains is counted in bytes of work. What can repeat in a
// certificate is bounded before it is parsed (parseCertificate).
//
// In addition to signatures, a hello on [attest.RoadEK] costs one encryption to its EK
// (RSAES-OAEP, or one key generation and one key agreement), and hello and answer cost the
// division of one RSA modulus by 16 small primes (ROCA).
const (
	// maxIssuerFetches bounds the calls to all [IssuerFetcher] implementations together.
	maxIssuerFetches = 16
	// elementWork is the work of reading one DER element of a certificate, added to that of its
	// bytes; stepWork that of one certificate or issuer while a chain is built
	// ([attest.Budget.Work]).
	elementWork, stepWork = 128, 512
)

// links has the cost so far of one request's certificates, and the known links between them. It
// belongs to one goroutine.
type links struct {
	*attest.Budget
	links  int              // signatures in chains
	failed map[linkID]error // links that did not verify; the others are in the memory

	fetched []*certificate // issuers that a fetcher returned
	asked   []fetchID      // URLs that need not be asked for again
	dropped []string       // what fetchers returned that is of no use
}

func newLinks(b *attest.Budget) *links {
	if b == nil {
		b = attest.NewBudget(message.MaxChainLinks + message.MaxFailedLinks)
	}
	return &links{Budget: b, failed: map[linkID]error{}}
}

// link checks that issuer signed cert, a machine's or a CA's: once per request, and not at
// all if that is remembered. Everything that needs no public-key operation has been checked
// before.
func (w *links) link(ctx context.Context, known *linkMemory, cert, issuer *certificate, leaf bool) error {
	id := linkOf(cert, issuer)
	switch {
	case w.failed[id] != nil:
		return w.failed[id]
	case known.has(id, cert):
		return nil
	case len(w.failed) >= message.MaxFailedLinks:
		return message.OverBudget("wrong signatures in chains", message.MaxFailedLinks)
	case w.links >= message.MaxChainLinks+message.MaxFailedLinks:
		return message.OverBudget("signatures in chains", message.MaxChainLinks+message.MaxFailedLinks)
	}
	if err := w.Signature(ctx); err != nil {
		return err
	}
	w.links++
	err := checkLink(cert, issuer)
	if err != nil {
		w.failed[id] = err
	} else {
		known.add(id, cert, leaf)
	}
	return err
}
