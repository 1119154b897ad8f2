package attest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// The most signatures of one request: its own, its chain's and, in an answer, a statement's and a
// quote's.
const (
	helloSignatures  = 1 + message.MaxChainLinks + message.MaxFailedLinks
	answerSignatures = helloSignatures + 2
)

// Budget limits the cost of one request, whatever its requester, kinds and issuers: at most 10
// signatures for a hello (the request's own and 9 in chains of certificates), two more for an answer,
// one encryption, and a fixed amount of other work. Most requests need two or three signatures. A kind
// calls Signature before each signature that it checks, Encryption before it makes a credential, and
// Work before other operations whose cost the sender controls, and returns the error if there is one.
// A Budget belongs to one goroutine. The zero value and nil allow nothing.
type Budget struct {
	limit       int
	signatures  int
	encryptions int
	work        int
}

// NewBudget returns a budget of that many signatures, for callers of a part of a kind, such as a
// document.Platform.
func NewBudget(signatures int) *Budget { return &Budget{limit: signatures} }

// budgetOf returns the budget of a request. Its own bytes are counted as work.
func budgetOf(signatures int, request *csr.Request) *Budget {
	return &Budget{limit: signatures, work: len(request.Spec.Request)}
}

// Signature counts one signature that is about to be checked. It returns a refusal with
// [CheckBudget], or an error that wraps [refusal.ErrRetry] once the context has ended; in
// either case the signature must not be checked.
func (b *Budget) Signature(ctx context.Context) error {
	b = cmp.Or(b, &Budget{})
	return b.operation(ctx, "signatures", &b.signatures, b.limit)
}

// Encryption counts one encryption to a key of the machine. A challenge needs at most one. The
// error is as for [Budget.Signature].
func (b *Budget) Encryption(ctx context.Context) error {
	b = cmp.Or(b, &Budget{})
	return b.operation(ctx, "encryptions", &b.encryptions, min(b.limit, 1))
}

// operation counts a public-key operation.
func (b *Budget) operation(ctx context.Context, what string, count *int, most int) error {
	if err := b.ended(ctx); err != nil {
		return err
	}
	if *count >= most {
		return message.OverBudget(what, most)
	}
	if err := b.take(operationWork); err != nil {
		return err
	}
	*count++
	return nil
}

// ended returns a retry if the context has ended.
func (b *Budget) ended(ctx context.Context) error {
	if err := ended(ctx); err != nil {
		return refusal.Retry(fmt.Errorf("stopped after %d signatures: %w", b.signatures, err))
	}
	return nil
}

// maxWork limits the work of one request, and operationWork is the work of a public-key operation:
// reading so many bytes takes about as long as a signature on P-256.
const maxWork, operationWork = 4 << 20, 64 << 10

// Work counts other work that is about to be done, in bytes read, compared, hashed or allocated. A
// request may take 4 MiB, including its own size and 64 KiB for each public-key operation. The error
// is as for [Budget.Signature].
func (b *Budget) Work(ctx context.Context, bytes int) error {
	b = cmp.Or(b, &Budget{})
	if err := b.ended(ctx); err != nil {
		return err
	}
	if b.limit <= 0 {
		return message.OverBudget("work", 0)
	}
	return b.take(bytes)
}

func (b *Budget) take(work int) error {
	if work < 0 || work > maxWork-b.work {
		return message.OverBudget("work", maxWork)
	}
	b.work += work
	return nil
}

// Signatures returns the number of signatures so far.
func (b *Budget) Signatures() int {
	signatures, _, _ := b.Spent()
	return signatures
}

// Spent returns the signatures, the encryptions and all work so far.
func (b *Budget) Spent() (signatures, encryptions, work int) {
	b = cmp.Or(b, &Budget{})
	return b.signatures, b.encryptions, b.work
}

// ended returns the error of a context that is nil or has ended.
func ended(ctx context.Context) error {
	if ctx == nil {
		return errors.New("attest: the context is nil")
	}
	return ctx.Err()
}
