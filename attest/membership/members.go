package membership

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Members are an inventory (csr.Policy.Machines) and an authorizer in one value. A [StaticList] is
// both; [With] combines two. Call attest.CheckAuthorizer with Members from a caller: it refuses nil and a
// missing half.
type Members interface {
	attest.Authorizer
	// Machine returns the inventory's machine for a node; see csr.Policy.Machines.
	Machine(ctx context.Context, q csr.Question) (*csr.Machine, error)
}

var _ Members = (*StaticList)(nil)

// With returns Members of an inventory and an authorizer, such as trust on first use. If one of them is
// nil, attest.CheckAuthorizer refuses the Members.
func With(inventory func(ctx context.Context, q csr.Question) (*csr.Machine, error), authorizer attest.Authorizer) Members {
	return &with{inventory, authorizer}
}

type with struct {
	inventory  func(ctx context.Context, q csr.Question) (*csr.Machine, error)
	authorizer attest.Authorizer
}

var errNoInventory = refusal.Config("Members", "that have no inventory", "one")

// Machine calls the inventory.
func (w *with) Machine(ctx context.Context, q csr.Question) (*csr.Machine, error) {
	if w.inventory == nil {
		return nil, errNoInventory
	}
	return w.inventory(ctx, q)
}

// CheckAuthorizer checks both halves.
func (w *with) CheckAuthorizer(open attest.Opening) error {
	if w.inventory == nil {
		return errNoInventory
	}
	return attest.CheckAuthorizer(w.authorizer, open)
}

// AuthorizeHello calls the authorizer's.
func (w *with) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	return r.AskAtHello(ctx, w.authorizer)
}

// Authorize calls the authorizer's.
func (w *with) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	return w.authorizer.Authorize(ctx, r)
}
