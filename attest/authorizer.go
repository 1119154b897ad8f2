package attest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/csr"
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
	switch s {
	case StageHello:
		return "hello"
	case StageAnswer:
		return "answer"
	}
	return "stage(?)"
}

// Authorizer decides whether this machine may be this node. A root of trust admits every
// machine that its issuer ever certified, an attacker's included, so nothing is accepted
// without one. Package attest/membership has some.
//
// Authorize sees the result so far ([Result.Stage] says how far that is) and the request
// object as it was filed; [Result.Checked] has the machine that the policy found for the
// node's name. It returns what it vouches for: the issuer of the certificate writes the
// provider ID and the SANs given here and no others. To refuse, it returns an error that wraps
// [CheckMembership], best made with [NotMember]. Any other error means that it could not
// decide: the request is neither approved nor denied and is looked at again. A nil
// Authorization without an error is a refusal.
//
// It decides in two steps. Authorize looks, and changes no state. Anything an authorizer has
// to write at [StageAnswer] it hands to [Result.WhenAdmitted]. That is done after Authorize
// has returned, and only if everybody who is asked admits the machine. So any code may embed
// or wrap an authorizer or combine it with others: only the one method counts, and nothing is
// recorded about a machine that is refused.
//
// Authorize is called from many goroutines and must not keep or change its arguments.
type Authorizer interface {
	Authorize(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error)
}

// AuthorizerFunc is a function used as an [Authorizer].
type AuthorizerFunc func(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error)

// Authorize calls f. A nil f decides nothing.
func (f AuthorizerFunc) Authorize(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error) {
	if f == nil {
		return nil, errors.New("attest: a nil AuthorizerFunc")
	}
	return f(ctx, r, request)
}

// AuthorizerChecker is implemented by an [Authorizer] that can be made or configured in such a
// way that it never decides correctly. [NewVerifier] calls it, so that the operator learns of
// the fault and no node is denied because of it.
type AuthorizerChecker interface {
	// CheckAuthorizer returns an error if the authorizer is unusable, or does not fit what the
	// verifier trusts: the roads of all of its kinds. It must be safe to call on the type's
	// zero value, and on a nil pointer if one can be made.
	CheckAuthorizer(open []OpenRoad) error
}

// Authorization is what an [Authorizer] vouches for.
type Authorization struct {
	// ProviderID is the provider ID to write into the certificate; empty for none. A request
	// that claims a different one is refused.
	ProviderID string
	// DNSNames and IPAddresses are the SANs that a serving certificate for this node may have.
	// A request for any others is refused.
	DNSNames    []string
	IPAddresses []netip.Addr
	// NotAfter is the latest end of any certificate issued on this authorization, in whole
	// seconds; the zero time sets no bound.
	NotAfter time.Time

	record recordWriter // what WhenIssued handed in, once the machine is admitted
}

// CheckMembership: the [Authorizer] refused the machine.
const CheckMembership Check = "not-a-member"

// NotMember returns a refusal with a reason for people, for example "machine
// gce:p/1 is registered as node b".
func NotMember(reason string) error {
	return &Error{Check: CheckMembership, Got: reason}
}

// CheckProviderID: the request claims a provider ID that the authorizer does not
// vouch for.
const CheckProviderID Check = "provider-id"

// Admit asks an [Authorizer] for membership as a [Verifier] does. It is meant for anyone who
// calls one from elsewhere: a test of an authorizer, another kind of evidence. It checks the
// provider ID that the request claims against the answer, then does what was handed to
// [Result.WhenAdmitted], in that order, and sets r.Authorization and what [Result.Attested]
// returns. A nil error means admission. An error that wraps [CheckMembership] or
// [CheckProviderID] is a refusal; any other wraps [csr.ErrRetry].
func Admit(ctx context.Context, a Authorizer, r *Result, request *csr.Request) error {
	p, machine := &pending{}, r.Machine
	r.pending = p
	given, err := r.ask(ctx, a, request)
	p.close()
	if err == nil {
		err = writeAll(ctx, p.writes, csr.IssuedRecord{})
	}
	if err != nil {
		return err
	}
	given.record = nil
	if len(p.issues) > 0 {
		given.record = func(ctx context.Context, issued csr.IssuedRecord) error { return writeAll(ctx, p.issues, issued) }
	}
	r.Authorization = *given
	if r.Stage == StageAnswer && r.checked != nil {
		r.attested = given.Vouch(r.checked, machine)
	}
	return nil
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
	if !errors.Is(err, CheckMembership) {
		return csr.Retry(err)
	}
	if e, ok := errors.AsType[*Error](err); ok && e != nil && e.Check == CheckMembership {
		return err
	}
	return &Error{Check: CheckMembership, Got: "a machine that the authorizer refuses", Err: err}
}

// Vouch returns what the issuer of the certificate needs to know: all that the
// authorization vouches for, including its end and what is to be recorded, bound to the
// request that was checked and to the machine. Every provider makes its csr.Attested here, so
// that none forgets a part. checked must not be nil.
func (a *Authorization) Vouch(checked *csr.Checked, machine Identity) *csr.Attested {
	v := checked.Vouch(string(machine))
	v.ProviderID = a.ProviderID
	v.DNSNames = slices.Clone(a.DNSNames)
	v.IPAddresses = slices.Clone(a.IPAddresses)
	v.NotAfter = a.NotAfter
	v.Record = a.record
	return v
}

// ask asks an authorizer, and checks the provider ID that the request claims against its
// answer. At the hello, the authorizer may not know a claimed provider ID that it learns by
// the time of the answer.
func (r *Result) ask(ctx context.Context, authorizer Authorizer, request *csr.Request) (*Authorization, error) {
	if err := ctx.Err(); err != nil {
		return nil, csr.Retry(err)
	}
	if err := r.checkKind(); err != nil {
		return nil, err
	}
	a, err := authorizer.Authorize(ctx, r, request)
	switch {
	case errors.Is(err, CheckMembership):
		return nil, asMembership(err)
	case err != nil:
		return nil, csr.Retry(err)
	case a == nil:
		return nil, NotMember("machine " + string(r.Machine) + " (no authorization was given)")
	}
	early := a.ProviderID == "" && r.Stage == StageHello
	if claimed := r.ClaimedProviderID; claimed != "" && claimed != a.ProviderID && !early {
		return nil, &Error{Check: CheckProviderID, Got: claimed, Want: refusal.OrNothing(a.ProviderID)}
	}
	given := *a
	given.DNSNames, given.IPAddresses = slices.Clone(a.DNSNames), slices.Clone(a.IPAddresses)
	return &given, nil
}

// checkKind refuses evidence of a kind other than the one by which the inventory knows the
// machine: anyone who can get the weaker of two cannot downgrade to it.
func (r *Result) checkKind() error {
	if r.checked == nil || r.checked.Machine() == nil {
		return nil
	}
	if want := r.checked.Machine().Provider; want != "" && want != r.Provider {
		return NotMember("machine " + string(r.Machine) + " by " + refusal.OrNothing(r.Provider) + ", where the inventory has node " + r.NodeName + " by " + want)
	}
	return nil
}

// pending is what authorizers have handed in to be written once the machine is admitted.
type pending struct {
	mu             sync.Mutex
	closed         bool // nothing changes any more
	writes, issues []recordWriter
}

type recordWriter = func(ctx context.Context, issued csr.IssuedRecord) error

// close ends the period in which something can be handed in.
func (p *pending) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

var (
	errNoWrites   = errors.New("attest: nothing may be written for a hello")
	errNotPending = errors.New("attest: there is no decision under way that a write could belong to")
	errNilWrite   = errors.New("attest: a write that is nil")
)

// WhenAdmitted hands in what an [Authorizer] has to write, from inside Authorize and at
// [StageAnswer]. The writes are done after every authorizer has agreed and the provider ID
// that the request claims has been checked against the authorization, in the order in which
// they were handed in. The machine is admitted only if all of them succeed. An error from
// write counts like one from Authorize. Nothing is written for a machine that is refused.
//
// It is an error to call it at StageHello, outside Authorize, or on a Result that neither a
// Verifier nor [Admit] has asked an authorizer about. An authorizer that gets such an error
// must return it: its write will not happen.
func (r *Result) WhenAdmitted(write func(ctx context.Context) error) error {
	return r.handIn(write == nil, func(p *pending) *[]recordWriter { return &p.writes }, func(ctx context.Context, _ csr.IssuedRecord) error { return write(ctx) })
}

// WhenIssued hands in, as [Result.WhenAdmitted] does, what is to be written together with the
// record of the certificate. [csr.CA.Issue] does so for a machine that was admitted, before
// the certificate is handed out. It is not done at all if something else signs.
func (r *Result) WhenIssued(write func(ctx context.Context, issued csr.IssuedRecord) error) error {
	return r.handIn(write == nil, func(p *pending) *[]recordWriter { return &p.issues }, write)
}

func (r *Result) handIn(none bool, list func(*pending) *[]recordWriter, write recordWriter) error {
	switch {
	case none:
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
	l := list(r.pending)
	*l = append(*l, write)
	return nil
}
