package tpm

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nodeattest/nodeattest/csr"
)

// What one request may cost, whoever sends it and however many issuers there are.
//
// Every public-key operation of a [Verifier] is counted. A signature is checked only
// under a key that is RSA of 2048 to [MaxRSABits] bits with the exponent 65537, or on
// P-256, P-384 or P-521. A chain is put together by names first, and everything that
// its certificates say is held against it: encoding, order, validity, constraints,
// usages, kinds of key and hash. Only a chain that then ends at a root costs
// signatures, and they are checked from the root down, so that no signature is ever
// checked under a CA key that the sender chose. A verified intermediate is remembered
// and costs nothing the next time.
//
// Beside signatures a hello costs one encryption to its EK (RSAES-OAEP, or one key
// generation and one key agreement) on [RoadEK], and hello and answer the division of
// one RSA modulus by 16 small primes (ROCA).
const (
	// MaxRSABits is the size of the largest RSA keys.
	MaxRSABits = maxRSABits
	// MaxChainLinks bounds the signatures of one chain, root's own left out: a chain
	// has at most one certificate more, its root among them. The longest known chain of a
	// vendor has three links. Those of intermediates are checked a second time, by
	// crypto/x509, where a CA has constraints on names or policies.
	MaxChainLinks = 5
	// MaxFailedLinks bounds the signatures in chains that turn out to be wrong: after so
	// many no other is looked at. Only CAs that share a name, and certificates that do
	// not say which of them is meant, need more than none.
	MaxFailedLinks = 4
	// MaxHelloSignatures bounds the signatures that are checked for a hello: the
	// request's own and those of its chain. Most have two or three.
	MaxHelloSignatures = 1 + MaxChainLinks + MaxFailedLinks
	// MaxAnswerSignatures bounds those of an answer, which has a statement and perhaps
	// a quote too.
	MaxAnswerSignatures = MaxHelloSignatures + 2
	// MaxIssuerFetches bounds the calls of all [IssuerFetcher] together.
	MaxIssuerFetches = 16

	// maxSearchSteps bounds the certificates that are looked at while a chain is put
	// together, which costs no signature.
	maxSearchSteps = 1024
)

// CheckBudget: a request would cost more than it may: see [MaxHelloSignatures].
const CheckBudget Check = "work-budget"

// work counts what one request costs, and ends it where that is too much. It belongs
// to one request and one goroutine.
type work struct {
	limit      int // of signatures
	signatures int
	links      int // of the signatures, those in chains
	failed     int // of the links, those that did not hold

	encryptions int
	steps       int
	fetches     int

	outcomes map[linkID]error // of the links that were checked
	fetched  []*certificate   // issuers, from wherever a fetcher got them
	asked    map[fetchID]bool // URLs that need not be asked for again
}

// newWork is the budget of one request to the verifier.
func (v *Verifier) newWork(signatures int) *work {
	w := newWork(signatures)
	if v.worked != nil {
		v.worked(w)
	}
	return w
}

func newWork(signatures int) *work {
	return &work{limit: signatures, outcomes: map[linkID]error{}, asked: map[fetchID]bool{}}
}

// signature counts one signature that is to be checked.
func (w *work) signature(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return csr.Retry(fmt.Errorf("attest: stopped after %d signatures: %w", w.signatures, err))
	}
	if w.signatures >= w.limit {
		return overBudget("signatures", w.limit)
	}
	w.signatures++
	return nil
}

// encryption counts one encryption to an EK.
func (w *work) encryption(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return csr.Retry(fmt.Errorf("attest: stopped before the credential: %w", err))
	}
	w.encryptions++
	return nil
}

// step counts one certificate that is looked at.
func (w *work) step() error {
	if w.steps >= maxSearchSteps {
		return overBudget("certificates on the way to a root", maxSearchSteps)
	}
	w.steps++
	return nil
}

// link checks that issuer signed cert, once for a request, and not at all where that
// is remembered. What can be said without a public-key operation has been said.
func (w *work) link(ctx context.Context, known *linkMemory, cert, issuer *certificate) error {
	id := linkID{cert.sum, issuer.spki}
	if err, done := w.outcomes[id]; done {
		return err
	}
	if known.has(id) {
		return nil
	}
	if w.failed >= MaxFailedLinks {
		return overBudget("wrong signatures in chains", MaxFailedLinks)
	}
	if w.links >= MaxChainLinks+MaxFailedLinks {
		return overBudget("signatures in chains", MaxChainLinks+MaxFailedLinks)
	}
	if err := w.signature(ctx); err != nil {
		return err
	}
	w.links++
	err := checkLink(cert, issuer)
	if err != nil {
		w.failed++
	}
	w.outcomes[id] = err
	return err
}

func overBudget(what string, limit int) error {
	return &Error{Check: CheckBudget, Got: "more " + what + " than that", Want: "at most " + strconv.Itoa(limit) + " for a request"}
}
