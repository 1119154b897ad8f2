package attest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// The signatures that one request may cost: its own, those of its chain, and, for an answer,
// those of a statement and perhaps a quote.
const (
	helloSignatures  = 1 + message.MaxChainLinks + message.MaxFailedLinks
	answerSignatures = helloSignatures + 2
)

// Budget counts the public-key operations of one request: at most 10 signatures for a hello
// (the request's own and 9 in chains of certificates) and two more for an answer, whoever
// sends it and however many kinds there are. Most need two or three. A kind calls Signature
// before each signature that it checks, and Encryption before it makes a credential, and
// returns the error if there is one. A Budget belongs to one goroutine. The zero value and nil
// allow nothing.
type Budget struct {
	limit       int
	signatures  int
	encryptions int
}

// NewBudget returns a budget of that many signatures, for who calls a part of a kind, such as a
// document.Platform, by itself.
func NewBudget(signatures int) *Budget { return &Budget{limit: signatures} }

// Signature counts one signature that is about to be checked. It returns a refusal with
// [CheckBudget], or an error that wraps [refusal.ErrRetry] once the context has ended; in
// either case the signature must not be checked.
func (b *Budget) Signature(ctx context.Context) error {
	if err := ended(ctx); err != nil {
		return refusal.Retry(fmt.Errorf("stopped after %d signatures: %w", b.Signatures(), err))
	}
	if b == nil || b.signatures >= b.limit {
		return message.OverBudget("signatures", b.most())
	}
	b.signatures++
	return nil
}

// Encryption counts one encryption to a key of the machine. A challenge needs at most one. The
// error is as for [Budget.Signature].
func (b *Budget) Encryption(ctx context.Context) error {
	if err := ended(ctx); err != nil {
		return refusal.Retry(fmt.Errorf("stopped before the credential: %w", err))
	}
	if b == nil || b.encryptions > 0 || b.limit == 0 {
		return message.OverBudget("encryptions", 1)
	}
	b.encryptions++
	return nil
}

// Signatures is how many signatures have been counted.
func (b *Budget) Signatures() int {
	if b == nil {
		return 0
	}
	return b.signatures
}

func (b *Budget) most() int {
	if b == nil {
		return 0
	}
	return b.limit
}

// Encryptions is how many encryptions have been counted.
func (b *Budget) Encryptions() int {
	if b == nil {
		return 0
	}
	return b.encryptions
}

// ended says why nothing more can be done in a context.
func ended(ctx context.Context) error {
	if ctx == nil {
		return errors.New("attest: the context is nil")
	}
	return ctx.Err()
}
