package membership

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// Members is a list of machines and the authority over it at once.
type Members interface {
	attest.Authorizer
	// Machine is the inventory of a csr.Policy.
	Machine(ctx context.Context, q csr.Question) (*csr.Machine, error)
}
