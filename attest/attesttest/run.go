package attesttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// The classes of attacks, as [Attack] has them. Evidence of WorldOptions.Prove is only attacked
// blindly in classStatement.
const (
	classRequest   = "request"
	classBinding   = "binding"
	classStatement = "statement"
	classFailure   = "failure"
	classHonest    = "honest"
)

// Attack is one request that a provider must refuse or, with class "honest", must admit.
type Attack struct {
	// Name names the change: lower case with hyphens, stable.
	Name string
	// Class is "request" (the object and the provider block), "binding" (good evidence
	// for another request, machine, requester, cluster or time), "statement" (the evidence
	// itself), "failure" (the inventory does not answer) or "honest".
	Class string
	// Description describes the attack in one sentence.
	Description string
	// Want are the checks that may refuse the attack. A refusal by another one is reported: the
	// attack has met something else than it is about. Nil means any check of the provider's
	// verification.
	Want []refusal.Check
	// Prove or Make makes an attack of WorldOptions.Attacks; both are nil in the package's own.
	// Prove makes the evidence that follows machine-1's request for a client certificate of
	// node-1, and Make the whole request. An error says that there is no request to verify, and
	// is reported as the attack's own fault, unless it matches a check of Want: that of a
	// provider that refuses the hello, for example.
	Prove func(ctx context.Context, provider csr.Provider, a *Applicant) (*csr.Bundle, error)
	Make  func(ctx context.Context, provider csr.Provider) (*csr.Request, error)

	make     func(context.Context, *attempt) (*csr.Request, error)
	serving  bool // it asks for a serving certificate
	mayRetry bool // a retry is as good as a refusal
}

// Outcome is the result of one attack.
type Outcome struct {
	Attack
	// Issued says that a certificate was issued for it.
	Issued bool
	// Err is the refusal, or nil.
	Err error
	// Fault describes the fault of the provider, or of the attack if it ended early, in one
	// sentence with the check; "" for a right outcome.
	Fault string
}

// attempt is one attack on one provider.
type attempt struct {
	*World
	provider   csr.Provider
	lastChange string // of a blind attack, for the description of the fault
}

// Run tries a provider in its world: honest requests must get a certificate, and no attack may. The
// provider's result goes to [csr.CA], as in a signer. Each attack is a subtest, class/name, which fails
// if the outcome is wrong.
//
//	world := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: documents})
//	verifier, err := attest.NewVerifier(world.Config)
//	...
//	attesttest.Run(t, provider, world)
//
// An attack that ends before the provider is asked to verify it shows nothing, and is reported. So is one
// that another check than [Attack.Want] refuses.
//
// In addition, a provider must not panic and must not change the request. For a bad request it must
// return an error that csr.Decide denies or ignores; if its own inventory does not answer, one that
// csr.Decide retries.
func Run(t *testing.T, provider csr.Provider, w *World) {
	t.Helper()
	for _, o := range Try(context.Background(), provider, w) {
		t.Run(o.Class+"/"+o.Name, func(t *testing.T) {
			if o.Fault != "" {
				t.Errorf("%s: %s\n%s\nThe provider's error: %v", o.Name, o.Fault, o.Description, o.Err)
			}
		})
	}
}

// Try does what [Run] does and reports it as values.
func Try(ctx context.Context, provider csr.Provider, w *World) []Outcome {
	attacks := attacksIn(w)
	outcomes := make([]Outcome, 0, len(attacks))
	for i := range attacks {
		outcomes = append(outcomes, w.try(ctx, provider, &attacks[i]))
	}
	return outcomes
}

// GotIn returns the names of the attacks with a Fault, in order.
func GotIn(outcomes []Outcome) []string {
	var names []string
	for i := range outcomes {
		if outcomes[i].Fault != "" {
			names = append(names, outcomes[i].Name)
		}
	}
	return names
}

// attacksIn returns all attacks of a world.
func attacksIn(w *World) []Attack {
	attacks := slices.Concat(honestRequests(), w.requestAttacks(), w.evidenceAttacks(), machineAttacks())
	if w.options.ClientOnly {
		attacks = slices.DeleteFunc(attacks, func(a Attack) bool { return a.serving })
		attacks = append(attacks, attackOf(classRequest, "serving-not-served", "A node asks for a serving certificate, and the provider is for client certificates alone.",
			requestOptions{serving: true}))
	}
	if d := w.options.Documents; d != nil {
		attacks = append(attacks, documentAttacks(d.Undated)...)
	}
	if !w.options.SkipBlind {
		attacks = append(attacks, w.blindAttacks()...)
	}
	if w.watched.Kind != nil {
		attacks = append(attacks, budgetAttack())
	}
	attacks = append(attacks, attackOf(classFailure, "inventory-down", "The inventory does not answer. A provider must neither accept nor refuse for good.", requestOptions{}))
	return append(attacks, w.options.Attacks...)
}

// made makes the request of an attack.
func (a *Attack) made(ctx context.Context, at *attempt) (request *csr.Request, err error) {
	defer caught(&err)
	switch {
	case a.Make != nil:
		return a.Make(ctx, at.provider)
	case a.Prove != nil:
		return requestOptions{prove: a.Prove}.make(ctx, at)
	}
	return a.make(ctx, at)
}

// try makes one attack and returns its outcome.
func (w *World) try(ctx context.Context, provider csr.Provider, attack *Attack) (o Outcome) {
	o.Attack = *attack
	at := &attempt{World: w, provider: provider}
	request, err := attack.made(ctx, at)
	defer w.watched.spent.Store(false)
	if err != nil {
		o.Err, o.Fault = err, at.endedEarly(ctx, attack, err)
		return o
	}
	w.setDown(attack.Class == classFailure)
	err = w.issue(ctx, provider, request)
	w.setDown(false)
	o.Issued, o.Err = err == nil, err
	if o.Fault = attack.faultOf(err); o.Fault != "" {
		o.Fault += at.lastChange
	}
	return o
}

// endedEarly returns the fault of an attack for which there is no request, or "": a check that it wants
// has refused it, or the provider challenges, and gives this machine no challenge.
func (a *attempt) endedEarly(ctx context.Context, attack *Attack, err error) string {
	_, failed := errors.AsType[failure](err)
	_, inapplicable := errors.AsType[errNotApplicable](err)
	switch {
	case failed:
		return "the request of the attack could not be made: a fault of the runner or of Prove"
	case attack.Class == classHonest:
		return (&Attack{Class: classHonest}).faultOf(err)
	case inapplicable || attack.wants(err):
		return ""
	case attack.make != nil && csr.Decide(err).Verdict == csr.VerdictDeny:
		honest := &Attack{make: requestOptions{}.make}
		if _, err := honest.made(ctx, a); err == nil {
			return ""
		}
	}
	return "the attack ended before the provider was asked to verify it, by " + stoppedBy(err)
}

// stoppedBy names the check of an error.
func stoppedBy(err error) string {
	if e, ok := errors.AsType[*refusal.Error](err); ok && e != nil {
		return "check " + string(e.Check)
	}
	if r, ok := errors.AsType[interface {
		error
		DenyReason() string
	}](err); ok {
		return "reason " + r.DenyReason()
	}
	return "an error without a check"
}

// wants reports whether a check that may refuse the attack is in err.
func (a *Attack) wants(err error) bool {
	return slices.ContainsFunc(a.Want, func(c refusal.Check) bool { return errors.Is(err, c) })
}

// faultOf returns the fault of a provider that answered the attack with err, or "".
func (a *Attack) faultOf(err error) string {
	verdict := csr.Decide(err).Verdict
	switch {
	case errors.Is(err, errPanicked), errors.Is(err, errChanged):
		return err.Error()
	case a.mayRetry && err != nil && verdict == csr.VerdictRetry:
	case a.Class == classHonest && err != nil && a.serving:
		return "an honest request was refused, by " + stoppedBy(err) + "; a provider for client certificates alone sets WorldOptions.ClientOnly"
	case a.Class == classHonest && err != nil:
		return "an honest request was refused, by " + stoppedBy(err)
	case a.Class == classHonest:
	case err == nil || errors.Is(err, csr.ErrOtherSigner) && !errors.Is(err, csr.CheckSignerName) && !errors.Is(err, csr.Check("provider-unknown")): // this CA would not sign, but another one would
		return "the attack got a certificate"
	case a.Class == classFailure && verdict != csr.VerdictRetry:
		return "the request was refused for good, although the inventory did not answer"
	case a.Class != classFailure && verdict != csr.VerdictDeny && verdict != csr.VerdictIgnore:
		return "the error is not a refusal: csr.Decide would retry the request"
	case len(a.Want) > 0 && !a.wants(err):
		return fmt.Sprintf("the attack was refused by %s, want %q", stoppedBy(err), a.Want)
	}
	return ""
}

// Faults of a provider, whatever the request.
var (
	errPanicked = errors.New("the provider panicked")
	errChanged  = errors.New("attesttest: the provider changed the request that it was given")
)

// issue has a request verified and a certificate issued, as a signer does.
func (w *World) issue(ctx context.Context, provider csr.Provider, request *csr.Request) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%w: %v", errPanicked, value)
		}
	}()
	before, _ := json.Marshal(request)
	attested, err := csr.Verify(ctx, provider, request)
	kept, _ := request.Parsed().Bundle() // nil for what cannot be parsed
	fresh, _ := csr.Parse(request.Spec.Request)
	after, _ := json.Marshal(request)
	if !bytes.Equal(before, after) || !reflect.DeepEqual(kept, fresh) {
		return errChanged
	}
	if err != nil {
		return err
	}
	_, err = w.ca.Issue(ctx, attested)
	return err
}
