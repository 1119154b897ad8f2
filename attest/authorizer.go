package attest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// Stage says how far a verification has got when membership is asked about.
type Stage int

const (
	// StageHello: the node has presented its certificates but has not yet proven anything with
	// its AK. Nothing may be recorded at this stage.
	StageHello Stage = 1
	// StageAnswer: every other check of the answer has passed.
	StageAnswer Stage = 2
)

// String returns "hello" or "answer".
func (s Stage) String() string {
	if s != StageHello && s != StageAnswer {
		return "stage(?)"
	}
	return [...]string{StageHello: "hello", StageAnswer: "answer"}[s]
}

// Authorizer decides whether this machine may be this node. A root of trust admits every
// machine that its issuer ever certified, an attacker's included, so nothing is accepted
// without one. Package attest/membership has some.
//
// Authorize is asked at [StageAnswer], after every other check. It sees the result so far;
// [Result.Checked] has the request and the machine that the policy found for the node's name.
// It says which node the machine may be: [Result.Admit] makes the Authorization for that node,
// and the Verifier refuses one for another node than the request's. It adds what it vouches
// for: the issuer of the certificate writes the provider ID and the SANs given there and no
// others. To refuse, it returns an error that wraps [CheckMembership], best made with
// [NotMember]. Any other error means that it could not decide: the request is neither approved
// nor denied and is looked at again. A nil Authorization without an error is a refusal.
//
// It decides in two steps. Authorize looks, and changes no state. Anything an authorizer has
// to write it hands to [Result.WhenAdmitted]. That is done after Authorize has returned, and
// only if everybody who is asked admits the machine. So any code may embed or wrap an
// authorizer or combine it with others, and nothing is recorded about a machine that is
// refused.
//
// An authorizer may have two more methods.
//
//	AuthorizeHello(ctx context.Context, r *Result) error
//
// is called at [StageHello]. It is for an authorizer that can already refuse then: a hello shows
// the machine's certificate, without proof, and the machine may be no member. Such a machine
// gets no challenge. AuthorizeHello writes nothing; its errors are those of Authorize. An
// authorizer without this method is asked only at the answer.
//
//	CheckAuthorizer(open Opening) error
//
// is called by [NewVerifier], so that the operator learns of a fault and no node is denied
// because of it. It returns an error if the authorizer is unusable, or does not fit what the
// verifier is open for. It must be safe to call on the type's zero value, and on a nil pointer
// if one can be made.
//
// Authorize is called from many goroutines and must not keep or change its arguments.
type Authorizer interface {
	Authorize(ctx context.Context, r *Result) (*Authorization, error)
}

// AuthorizerFunc is a function used as an [Authorizer].
//
// Not: AuthorizerFunc(list.Authorize), which hides that the list is nil or fits no open road,
// and what it knows at hellos. What admits less than another embeds it, or passes its methods on
// ([CheckAuthorizer], [Result.AskAtHello]).
type AuthorizerFunc func(ctx context.Context, r *Result) (*Authorization, error)

// Authorize calls f. A nil f decides nothing.
func (f AuthorizerFunc) Authorize(ctx context.Context, r *Result) (*Authorization, error) {
	if f == nil {
		return nil, errors.New("attest: a nil AuthorizerFunc")
	}
	return f(ctx, r)
}

// Opening is what a verifier is open for.
type Opening struct {
	// ClusterIDs are the names of the one cluster.
	ClusterIDs []string
	// Roads are the roads of all kinds of evidence.
	Roads []OpenRoad
	// MaxExpiration is the longest lifetime of a certificate by Kubernetes' own signers
	// (csr.Policy.MaxExpiration); 0 if the verifier serves none of them.
	MaxExpiration time.Duration
}

var errNoAuthorizer = errors.New("attest: no Authorizer, or a nil one")

// CheckAuthorizer returns an error if an authorizer is nil, a nil pointer or a nil function, or
// if its method CheckAuthorizer returns one: for an authorizer that asks others.
func CheckAuthorizer(a Authorizer, open Opening) error {
	if typednil.Is(a) {
		return errNoAuthorizer
	}
	if c, ok := a.(interface{ CheckAuthorizer(open Opening) error }); ok {
		return c.CheckAuthorizer(open)
	}
	return nil
}

// AskAtHello asks an authorizer at a hello, if it can be asked then: for an authorizer that asks
// others.
func (r *Result) AskAtHello(ctx context.Context, a Authorizer) error {
	if typednil.Is(a) {
		return errNoAuthorizer
	}
	if h, ok := a.(interface {
		AuthorizeHello(ctx context.Context, r *Result) error
	}); ok {
		return h.AuthorizeHello(ctx, r)
	}
	return nil
}

// Authorization is what an [Authorizer] vouches for. [Result.Admit] makes one; one that it did
// not make for this very result, such as the zero value, admits no machine.
type Authorization struct {
	// Grant is what is vouched for. A request that claims another provider ID or asks for
	// other SANs is refused. Its Record is called as what [Result.WhenIssued] hands in.
	csr.Grant

	result   *Result
	nodeName string
}

// Admit returns an authorization of this machine as the node of this name, vouching for nothing
// else yet. The name is the one that the authorizer knows the machine by.
//
// Not: Admit(r.NodeName) by who has only looked whether r.Machine is one of many: every one of
// them could then be every node.
func (r *Result) Admit(nodeName string) *Authorization {
	return &Authorization{result: r, nodeName: nodeName}
}

// For returns the name of the node that the machine of r is admitted as, "" if a was not made for
// r: one for another result admits no machine.
func (a *Authorization) For(r *Result) string {
	if a == nil || r == nil || a.result != r {
		return ""
	}
	return a.nodeName
}

// NotMember returns a refusal with a reason for people, for example "machine
// gce:p/1 is registered as node b".
func NotMember(reason string) error {
	return &Error{Check: CheckMembership, Got: reason}
}

// Membership asks an [Authorizer] as a [Verifier] does. It is meant for anyone who calls one
// from elsewhere, such as a test of an authorizer. It first refuses a machine whose evidence
// contradicts the provider ID in the inventory ("provider-id-evidence"). At [StageHello] only one
// that can be asked then is asked. At [StageAnswer] it reconciles what evidence, inventory,
// authorizer and request say about the provider ID, checks the lifetime that the request asks for
// against the end of the Authorization, sets what [Result.Attested] returns, then does what was
// handed to [Result.WhenAdmitted], in that order. A nil error means admission. An error that wraps
// [CheckMembership], "expiration", or "provider-id" without [refusal.ErrRetry], is a refusal; any other wraps
// [refusal.ErrRetry].
//
// A Result is decided about once. So it is an error to call this from inside Authorize, whose
// decision is under way: an authorizer that asks another calls its Authorize.
func Membership(ctx context.Context, a Authorizer, r *Result) error {
	switch {
	case ended(ctx) != nil:
		return refusal.Retry(ended(ctx))
	case r == nil || r.Stage != StageHello && r.Stage != StageAnswer:
		return refusal.Retry(errors.New("attest: no result, or one of no stage"))
	case typednil.Is(a):
		return refusal.Retry(errNoAuthorizer)
	case r.pending != nil:
		return refusal.Retry(errDecided)
	}
	if r.checked != nil {
		if err := contradicted(r.checked.CheckMachine(string(r.Machine))); err != nil {
			return err
		}
	}
	if err := r.knowProviderID(); err != nil {
		return err
	}
	if r.Stage != StageAnswer {
		return asMembership(r.AskAtHello(ctx, a))
	}
	p, machine := &pending{}, r.Machine
	r.pending = p
	given, err := r.ask(ctx, a)
	if fault := p.close(); fault != nil && err == nil {
		err = refusal.Retry(fault)
	}
	r.Granted = csr.Grant{}
	if err != nil {
		return err
	}
	if given.Record != nil {
		p.issues = append(p.issues, given.Record)
		given.Record = nil
	}
	granted := *given
	if len(p.issues) > 0 {
		given.Record = func(ctx context.Context, issued csr.IssuedRecord) error { return writeAll(ctx, p.issues, issued) }
	}
	if r.checked != nil {
		p.attested = r.checked.Vouch(string(machine), *given, r) // what is written may read it
		_, err = p.attested.Record(nil)
		err = contradicted(err)
	}
	if err == nil {
		err = writeAll(ctx, p.writes, csr.IssuedRecord{})
	}
	if err != nil {
		p.attested = nil
		return err
	}
	r.Granted = granted
	return nil
}

// contradicted turns a contradiction of the inventory, as which a provider ID counts, into a refusal
// with CheckMembership. Another rule of the policy, such as "expiration", stays what it is: the node
// can ask in another way.
func contradicted(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Check != refusal.ErrRetry &&
		(e.Check == csr.CheckProviderIDMismatch || !slices.Contains(csr.PolicyChecks(), e.Check)) {
		return &Error{Check: CheckMembership, Got: e.Got, Want: e.Want}
	}
	return err
}

// writeAll performs the writes that were handed in, up to the first error.
func writeAll(ctx context.Context, writes []recordWriter, issued csr.IssuedRecord) error {
	for _, write := range writes {
		if err := write(ctx, issued); err != nil {
			return asMembership(err)
		}
	}
	return nil
}

// asMembership turns a refusal that merely wraps the check into the form that [csr.Decide]
// denies, and makes everything else a retry.
func asMembership(err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, CheckMembership) {
		return refusal.Retry(err)
	}
	if e, ok := errors.AsType[*Error](err); ok && e != nil && e.Check == CheckMembership {
		return err
	}
	return &Error{Check: CheckMembership, Got: "a machine that the authorizer refuses", Err: err}
}

// ask asks an authorizer, and reconciles the provider ID that it vouches for.
func (r *Result) ask(ctx context.Context, authorizer Authorizer) (*csr.Grant, error) {
	a, err := authorizer.Authorize(ctx, r)
	switch {
	case err != nil:
		return nil, asMembership(err)
	case a == nil:
		return nil, NotMember("machine " + string(r.Machine) + " (no authorization was given)")
	case a.result != r:
		return nil, NotMember("machine " + string(r.Machine) + " (the authorization is of another result)")
	case a.nodeName != r.NodeName:
		return nil, NotMember("machine " + string(r.Machine) + " as node " + r.NodeName + ", which is admitted as node " + a.nodeName)
	}
	given := a.Grant
	if given.ProviderID, err = r.reconcileProviderID(a.ProviderID); err != nil {
		return nil, err
	}
	given.DNSNames, given.IPAddresses = slices.Clone(a.DNSNames), slices.Clone(a.IPAddresses)
	return &given, nil
}

// pending is what authorizers have handed in to be written once the machine is admitted.
type pending struct {
	mu             sync.Mutex
	closed         bool // nothing changes any more
	fault          error
	writes, issues []recordWriter
	attested       *csr.Attested // nil until the authorizer has decided; copies of the Result see it too
}

type recordWriter = func(ctx context.Context, issued csr.IssuedRecord) error

// close ends the period in which something can be handed in, and returns what went wrong with
// that: an authorizer that drops the error still admits no machine.
func (p *pending) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.fault
}

var (
	errNotPending = errors.New("attest: there is no decision under way that a write could belong to")
	errDecided    = errors.New("attest: membership is being decided for this result, or has been: an authorizer asks another by its method Authorize")
	errNilWrite   = errors.New("attest: a write that is nil")
)

// WhenAdmitted hands in what an [Authorizer] has to write, from inside Authorize. The writes are
// done after every authorizer has agreed and the provider ID that the request claims has been
// checked against the authorization, in the order in which they were handed in. The machine is
// admitted only if all of them succeed. An error from write counts like one from Authorize.
// Nothing is written for a machine that is refused.
//
// It is an error to hand in nil, and to call it outside Authorize: the write does not happen.
// Inside Authorize such an error keeps the machine out, whatever Authorize returns.
func (r *Result) WhenAdmitted(write func(ctx context.Context) error) error {
	return r.handIn(write == nil, func(p *pending) {
		p.writes = append(p.writes, func(ctx context.Context, _ csr.IssuedRecord) error { return write(ctx) })
	})
}

// WhenIssued hands in, as [Result.WhenAdmitted] does, what is to be written together with the
// record of the certificate. [csr.CA.Issue] does so for a machine that was admitted, before
// the certificate is handed out. It is not done at all if something else signs.
func (r *Result) WhenIssued(write func(ctx context.Context, issued csr.IssuedRecord) error) error {
	return r.handIn(write == nil, func(p *pending) { p.issues = append(p.issues, write) })
}

func (r *Result) handIn(none bool, add func(*pending)) error {
	if r == nil || r.pending == nil {
		return errNotPending
	}
	r.pending.mu.Lock()
	defer r.pending.mu.Unlock()
	switch {
	case r.pending.closed:
		return errNotPending
	case none:
		r.pending.fault = errNilWrite
		return errNilWrite
	}
	add(r.pending)
	return nil
}
