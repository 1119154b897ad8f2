package tpm

import (
	"context"
	"errors"
	"sync"

	"github.com/nodeattest/nodeattest/csr"
)

// pending is what authorizers have handed in to be written once the machine is
// admitted.
type pending struct {
	mu     sync.Mutex
	closed bool
	writes []func(context.Context) error
}

// close ends the time in which something can be handed in.
func (p *pending) close() []func(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.writes
}

var (
	errNoWrites   = errors.New("attest: nothing may be written for a hello")
	errNotPending = errors.New("attest: there is no decision under way that a write could belong to")
	errNilWrite   = errors.New("attest: a write that is nil")
)

// WhenAdmitted hands in what an [Authorizer] has to write, from inside Authorize and at
// [StageAnswer]. It is done after every authorizer has agreed and the provider ID that
// the request claims has been held against the authorization, in the order in which it
// was handed in; the machine is admitted only if all of it succeeds. An error of write
// counts as one of Authorize does. Of a machine that is refused nothing is written.
//
// It is an error at StageHello, outside Authorize, and on a Result that neither a
// Verifier nor [Admit] has asked an authorizer about. An authorizer that gets one must
// return it: its write will not happen.
func (r *Result) WhenAdmitted(write func(ctx context.Context) error) error {
	switch {
	case write == nil:
		return errNilWrite
	case r.Stage != StageAnswer:
		return errNoWrites
	case r.pending == nil:
		return errNotPending
	}
	r.pending.mu.Lock()
	defer r.pending.mu.Unlock()
	if r.pending.closed {
		return errNotPending
	}
	r.pending.writes = append(r.pending.writes, write)
	return nil
}

// NewResult returns a Result of a request that the policy has passed, with nothing known
// of the machine yet, so that an [Authorizer] can be tested: fill in the fields that it
// looks at and call [Admit].
func NewResult(stage Stage, checked *csr.Checked) *Result {
	r := &Result{Stage: stage, checked: checked}
	if checked != nil {
		r.NodeName, r.Purpose = checked.NodeName(), checked.Purpose()
	}
	return r
}
