// Package work counts what one request costs the control plane, and stops it if that is too
// much.
package work

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// Limits on the certificate signatures that one request may cost.
const (
	// MaxChainLinks limits the number of signatures in one chain.
	MaxChainLinks = 5
	// MaxFailedLinks limits the number of signatures in chains that turn out to be wrong.
	MaxFailedLinks = 4
)

// Limits on the signatures of one request: its own, those of its chain, and, for an answer,
// those of a statement and perhaps a quote.
const (
	HelloSignatures  = 1 + MaxChainLinks + MaxFailedLinks
	AnswerSignatures = HelloSignatures + 2
)

// CheckBudget: a request would cost more than it may.
const CheckBudget refusal.Check = "work-budget"

// Budget counts the public-key operations of one request. It belongs to one goroutine.
// The zero value allows none.
type Budget struct {
	limit       int
	signatures  int
	encryptions int
}

// New returns a budget of that many signatures.
func New(signatures int) *Budget { return &Budget{limit: signatures} }

// Signature counts one signature that is about to be checked. It returns a refusal with
// [CheckBudget], or an error that wraps [refusal.ErrRetry] once the context has ended; in
// either case the signature must not be checked.
func (b *Budget) Signature(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return refusal.Retry(fmt.Errorf("stopped after %d signatures: %w", b.signatures, err))
	}
	if b.signatures >= b.limit {
		return Over("signatures", b.limit)
	}
	b.signatures++
	return nil
}

// Encryption counts one encryption to a key of the machine. A challenge needs at most one. The
// error is as for [Budget.Signature].
func (b *Budget) Encryption(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return refusal.Retry(fmt.Errorf("stopped before the credential: %w", err))
	}
	if b.encryptions > 0 || b.limit == 0 {
		return Over("encryptions", 1)
	}
	b.encryptions++
	return nil
}

// Signatures is how many signatures have been counted.
func (b *Budget) Signatures() int { return b.signatures }

// Encryptions is how many encryptions have been counted.
func (b *Budget) Encryptions() int { return b.encryptions }

// Over is the refusal of what would cost more than limit.
func Over(what string, limit int) error {
	return &refusal.Error{Check: CheckBudget, Got: "more " + what + " than that", Want: "at most " + strconv.Itoa(limit) + " for a request"}
}
