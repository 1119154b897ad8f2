package membership

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Members is who may join, in one: an inventory (csr.Policy.Machines) and what decides which
// machine may be which node. A [StaticList] is both; [With] puts two together. A function that is
// given Members calls attest.CheckAuthorizer, which refuses nil, a nil pointer and a half that is
// missing.
type Members interface {
	attest.Authorizer
	// Machine returns the machine that is to be the node; see csr.Policy.Machines.
	Machine(ctx context.Context, q csr.Question) (*csr.Machine, error)
}

var _ Members = (*StaticList)(nil)

// With returns the machines of an inventory and an authorizer as one: trust on first use of the
// machines that an inventory has, for example. If one of them is nil, attest.CheckAuthorizer
// refuses the Members.
func With(inventory func(ctx context.Context, q csr.Question) (*csr.Machine, error), authorizer attest.Authorizer) Members {
	return &with{inventory, authorizer}
}

type with struct {
	inventory  func(ctx context.Context, q csr.Question) (*csr.Machine, error)
	authorizer attest.Authorizer
}

var errNoInventory = refusal.Config("Members", "that have no inventory", "one")

// Machine asks the inventory.
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

// AuthorizeHello asks the authorizer.
func (w *with) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	return r.AskAtHello(ctx, w.authorizer)
}

// Authorize asks the authorizer.
func (w *with) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	return ask(ctx, w.authorizer, r)
}
