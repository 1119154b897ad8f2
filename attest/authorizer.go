package attest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Stage is the step of the join at which membership is decided.
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

// Authorizer decides whether a machine may be the node that it asks to be. A root of trust covers
// every machine that its issuer ever certified, an attacker's included, so a Verifier needs one.
// Package attest/membership has several.
//
// Authorize is called at [StageAnswer], after every other check. It sees the result so far;
// [Result.Checked] has the request and the machine that the inventory has for the node's name.
// To admit the machine it returns an Authorization of [Result.Admit] with its grant: the provider
// ID and the SANs that the certificate may contain. The Verifier refuses one for another node than
// the request's. To refuse the machine it returns an error that wraps [CheckMembership], best made
// with [NotMember]; a nil Authorization without an error is a refusal too. Any other error means
// that it could not decide: the request is neither approved nor denied, and is verified again.
//
// Authorize only reads. It passes its writes to [Result.WhenAdmitted]: they run after Authorize has
// returned, and only if every authorizer that was asked admits the machine. So any code may embed,
// wrap or combine authorizers, and nothing is recorded about a machine that is refused.
//
// Authorize is called from many goroutines and must not keep or change its arguments.
//
// An authorizer may have two more methods.
//
//	AuthorizeHello(ctx context.Context, r *Result) error
//
// is called at [StageHello], when the machine has shown its certificate and proven nothing. If it
// returns an error, the machine gets no challenge. It writes nothing; its errors are those of
// Authorize. An authorizer without this method decides at the answer alone.
//
//	CheckAuthorizer(open Opening) error
//
// is called by [NewVerifier], so that a configuration fault is reported to the operator instead of
// denying nodes. It returns an error if the authorizer is unusable, or does not fit the verifier.
// It must be safe to call on the type's zero value, and on a nil pointer if one can be made.
type Authorizer interface {
	Authorize(ctx context.Context, r *Result) (*Authorization, error)
}

// AuthorizerFunc is a function used as an [Authorizer].
//
// Don't wrap an authorizer as AuthorizerFunc(a.Authorize): that drops its CheckAuthorizer and
// AuthorizeHello. To restrict one, embed it, or call these two methods ([CheckAuthorizer],
// [Result.AskAtHello]).
type AuthorizerFunc func(ctx context.Context, r *Result) (*Authorization, error)

// Authorize calls f. A nil f returns an error.
func (f AuthorizerFunc) Authorize(ctx context.Context, r *Result) (*Authorization, error) {
	if f == nil {
		return nil, errors.New("attest: a nil AuthorizerFunc")
	}
	return f(ctx, r)
}

// Opening describes the requests that a verifier accepts.
type Opening struct {
	// ClusterIDs are the names of the verifier's cluster.
	ClusterIDs []string
	// Roads are the roads of all kinds of evidence.
	Roads []OpenRoad
	// MaxLifetime is the longest lifetime of a certificate of Kubernetes' own signers, from the
	// policy; 0 if the verifier serves none of them.
	MaxLifetime time.Duration
}

var errNoAuthorizer = errors.New("attest: no Authorizer, or a nil one")

// CheckAuthorizer returns an error if an authorizer is nil, or if its method CheckAuthorizer
// returns one. It is for authorizers that call others.
func CheckAuthorizer(a Authorizer, open Opening) error {
	if f, ok := a.(AuthorizerFunc); a == nil || ok && f == nil {
		return errNoAuthorizer
	}
	if c, ok := a.(interface{ CheckAuthorizer(open Opening) error }); ok {
		return c.CheckAuthorizer(open)
	}
	return nil
}

// AskAtHello calls an authorizer's AuthorizeHello, if it has that method. It is for authorizers
// that call others.
func (r *Result) AskAtHello(ctx context.Context, a Authorizer) error {
	if a == nil {
		return errNoAuthorizer
	}
	if h, ok := a.(interface {
		AuthorizeHello(ctx context.Context, r *Result) error
	}); ok {
		return h.AuthorizeHello(ctx, r)
	}
	return nil
}

// Authorization is an [Authorizer]'s admission of one machine, with its grant. [Result.Admit] makes
// one. Any other one, such as the zero value or one of another result, admits no machine.
type Authorization struct {
	// Grant holds the contents of the certificate. A request that claims another provider ID or
	// asks for other SANs is refused. Its Record is called like a write of [Result.WhenIssued].
	csr.Grant

	result   *Result
	nodeName string
}

// KnownNode is the name of the node that a machine may be, as the authorizer has it in its own list,
// inventory or registry. [Result.NodeName] is the name that the request asks for, and therefore no
// KnownNode: the conversion says that the authorizer has compared it with what it knows of the machine.
type KnownNode string

// Admit returns an authorization of r's machine as this node, with an empty grant. nodeName is the
// name that the authorizer has for the machine: if it were converted from r.NodeName after a check that
// r.Machine is known, any known machine could claim any node name.
func (r *Result) Admit(nodeName KnownNode) *Authorization {
	return &Authorization{result: r, nodeName: string(nodeName)}
}

// InsecureAdmitAnyone returns an authorization of r's machine, whichever it is, as the node that it asks
// for. Every machine that the trusted issuers ever certified can then be any node. It is for tests.
func (r *Result) InsecureAdmitAnyone() *Authorization { return r.Admit(KnownNode(r.NodeName)) }

// AdmittedAs returns the node name that a grants to the machine of r, or "" if a belongs to another
// Result.
func (a *Authorization) AdmittedAs(r *Result) string {
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

// AskMembership decides about membership as a [Verifier] does, for other callers of an authorizer,
// such as its tests. It first refuses a machine whose evidence contradicts the provider ID in the
// inventory ("provider-id-evidence"). At [StageHello] it then calls AuthorizeHello, if the authorizer
// has it. At [StageAnswer] it calls Authorize, compares the provider IDs of evidence, inventory,
// grant and request, checks the requested lifetime against the end of the grant, sets the value of
// [Result.Attested] and runs the writes of [Result.WhenAdmitted], in that order. A nil error means
// admission. An error that wraps [CheckMembership], "expiration", or "provider-id" without
// [refusal.ErrRetry], is a refusal; any other wraps [refusal.ErrRetry].
//
// Each Result is decided once, so a call from inside Authorize is an error: an authorizer that asks
// another calls its Authorize.
func AskMembership(ctx context.Context, a Authorizer, r *Result) error {
	switch {
	case ended(ctx) != nil:
		return refusal.Retry(ended(ctx))
	case r == nil || r.Stage != StageHello && r.Stage != StageAnswer:
		return refusal.Retry(errors.New("attest: no result, or one of no stage"))
	case a == nil:
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
	pending, machine := &pendingWrites{}, r.Machine
	r.pending = pending
	grant, err := r.ask(ctx, a)
	err = cmp.Or(err, refusal.Retry(pending.close()))
	r.Granted = csr.Grant{}
	if err != nil {
		return err
	}
	if grant.Record != nil {
		pending.whenIssued = append(pending.whenIssued, grant.Record)
		grant.Record = nil
	}
	granted := *grant
	if len(pending.whenIssued) > 0 {
		grant.Record = func(ctx context.Context, issued csr.IssuedRecord) error {
			return writeAll(ctx, pending.whenIssued, issued)
		}
	}
	if r.checked != nil {
		pending.attested = r.checked.Vouch(string(machine), *grant, r) // the writes may read it
		_, err = pending.attested.Record(nil)
		err = contradicted(err)
	}
	if err == nil {
		err = writeAll(ctx, pending.whenAdmitted, csr.IssuedRecord{})
	}
	if err != nil {
		pending.attested = nil
		return err
	}
	r.Granted = granted
	return nil
}

// contradicted turns a contradiction between grant and inventory into a refusal with CheckMembership.
// Other rules of the policy, such as "expiration", are returned unchanged: the node can ask again with
// other parameters.
func contradicted(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Check != refusal.ErrRetry &&
		(e.Check == csr.CheckProviderIDMismatch || !slices.Contains(slices.Concat(csr.PolicyChecks()), e.Check)) {
		return &Error{Check: CheckMembership, Got: e.Got, Want: e.Want}
	}
	return err
}

// writeAll runs pending writes up to the first error.
func writeAll(ctx context.Context, writes []recordWriter, issued csr.IssuedRecord) error {
	for _, write := range writes {
		if err := write(ctx, issued); err != nil {
			return asMembership(err)
		}
	}
	return nil
}

// asMembership turns an error that wraps CheckMembership into a refusal that [csr.Decide] denies,
// and any other error into a retry. It returns nil for nil.
func asMembership(err error) error {
	if !errors.Is(err, CheckMembership) {
		return refusal.Retry(err)
	}
	if e, ok := errors.AsType[*Error](err); ok && e != nil && e.Check == CheckMembership {
		return err
	}
	return &Error{Check: CheckMembership, Got: "a machine that the authorizer refuses", Err: err}
}

// ask calls Authorize and returns its grant, with the provider ID compared.
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
	grant := a.Grant
	if grant.ProviderID, err = r.reconcileProviderID(a.ProviderID); err != nil {
		return nil, err
	}
	grant.DNSNames, grant.IPAddresses = slices.Clone(a.DNSNames), slices.Clone(a.IPAddresses)
	return &grant, nil
}

// pendingWrites collects the writes of all authorizers, to run after all of them agree.
type pendingWrites struct {
	mu           sync.Mutex
	closed       bool // Authorize has returned
	fault        error
	whenAdmitted []recordWriter
	whenIssued   []recordWriter
	attested     *csr.Attested // nil until the authorizer has decided; copies of the Result see it too
}

type recordWriter = func(ctx context.Context, issued csr.IssuedRecord) error

// close refuses further writes, and returns the fault of an earlier one: an authorizer that drops
// the error of WhenAdmitted still admits no machine.
func (p *pendingWrites) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.fault
}

var (
	errNotPending = errors.New("attest: WhenAdmitted or WhenIssued was called outside Authorize")
	errDecided    = errors.New("attest: membership of this Result is or was decided already: an authorizer asks another by its method Authorize")
	errNilWrite   = errors.New("attest: WhenAdmitted or WhenIssued was called with nil")
)

// WhenAdmitted adds a write of an [Authorizer], from inside Authorize. The writes run in this order
// after every authorizer has agreed and the provider ID that the request claims has been compared
// with the grant. The machine is admitted only if all of them succeed: an error of a write has the
// effect of one of Authorize. Nothing is written for a machine that is refused.
//
// With nil, and outside Authorize, it is an error and the write does not happen. Inside Authorize
// such an error refuses the machine, whatever Authorize returns.
func (r *Result) WhenAdmitted(write func(ctx context.Context) error) error {
	return r.addWrite(write == nil, func(p *pendingWrites) {
		p.whenAdmitted = append(p.whenAdmitted, func(ctx context.Context, _ csr.IssuedRecord) error { return write(ctx) })
	})
}

// WhenIssued adds a write that runs together with the record of the certificate. [csr.CA.Issue] calls
// it for an admitted machine before it returns the certificate. If another signer issues the
// certificate, it never runs.
func (r *Result) WhenIssued(write func(ctx context.Context, issued csr.IssuedRecord) error) error {
	return r.addWrite(write == nil, func(p *pendingWrites) { p.whenIssued = append(p.whenIssued, write) })
}

func (r *Result) addWrite(isNil bool, add func(*pendingWrites)) error {
	if r == nil || r.pending == nil {
		return errNotPending
	}
	r.pending.mu.Lock()
	defer r.pending.mu.Unlock()
	switch {
	case r.pending.closed:
		return errNotPending
	case isNil:
		r.pending.fault = errNilWrite
		return errNilWrite
	}
	add(r.pending)
	return nil
}
