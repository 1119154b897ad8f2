package attesttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
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

// Attack is one way in that a provider must not leave open. An honest request, which it must
// let in, is also one, with class "honest".
type Attack struct {
	// Name says in a few words what was changed: lower case with hyphens, stable.
	Name string
	// Class is "request" (the object and the provider block), "binding" (good evidence
	// for another request, machine, requester, cluster or time), "statement" (what carries the
	// proof), "failure" (the control plane does not answer) or "honest".
	Class string
	// Description says what the attacker did, in one sentence.
	Description string
	// Make makes the request of an attack of one's own; nil in those that the package makes. An
	// error with a csr.DenyReasoner, such as the provider's own, is as good as a refusal of it.
	Make func(ctx context.Context, provider csr.Provider) (*csr.Request, error)

	make func(context.Context, *attempt) (*csr.Request, error)
}

// Outcome is the result of one attack.
type Outcome struct {
	Attack
	// Issued says that a certificate was issued for it.
	Issued bool
	// Err is the refusal; nil if there was none.
	Err error
	// Fault says what is wrong with the provider, in one sentence; "" if it did what it
	// should.
	Fault string
}

// attempt is one attack on one provider.
type attempt struct {
	*World
	provider   csr.Provider
	lastChange string // of a blind attack, for the description of the fault
}

// Run tries a provider in its world: honest requests must get in, and none of the attacks may.
// "In" means a certificate: what the provider verified goes to [csr.CA], as a signer would
// pass it on. Each attack is a subtest, class/name, and one that gets in fails it under that
// name.
//
//	world := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: documents})
//	verifier, err := attest.NewVerifier(world.Config)
//	...
//	attesttest.Run(t, provider, world)
//
// In addition, a provider must not panic and must not change the request. Where the request is
// bad, it must answer with an error that csr.Decide takes for a refusal or for a request to be
// ignored; where its own inventory does not answer, with one that it takes for a retry.
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

// GotIn returns the names of the attacks for which a provider is at fault, in order.
func GotIn(outcomes []Outcome) []string {
	var names []string
	for i := range outcomes {
		if outcomes[i].Fault != "" {
			names = append(names, outcomes[i].Name)
		}
	}
	return names
}

// attacksIn lists everything that is tried in a world.
func attacksIn(w *World) []Attack {
	attacks := slices.Concat(honestRequests(), w.requestAttacks(), w.evidenceAttacks(), machineAttacks())
	if d := w.options.Documents; d != nil {
		attacks = append(attacks, documentAttacks(d.Undated)...)
	}
	attacks = append(attacks, w.blindAttacks()...)
	attacks = append(attacks, attackOf(classFailure, "inventory-down", "The inventory does not answer. A provider must neither accept nor refuse for good.", requestOptions{}))
	return append(attacks, w.options.Attacks...)
}

// made has an attack made. A step that failed is an error.
func (a *Attack) made(ctx context.Context, at *attempt) (request *csr.Request, err error) {
	failed := func() (failed error) {
		defer caught(&failed)
		if a.Make != nil {
			request, err = a.Make(ctx, at.provider)
		} else {
			request, err = a.make(ctx, at)
		}
		return nil
	}()
	if failed != nil {
		return nil, errors.Join(errNotMade, failed)
	}
	return request, err
}

// try makes one attack and says what is wrong with its outcome.
func (w *World) try(ctx context.Context, provider csr.Provider, attack *Attack) (o Outcome) {
	o.Attack = *attack
	at := &attempt{World: w, provider: provider}
	request, err := attack.made(ctx, at)
	switch {
	case errors.Is(err, errNotMade):
		o.Err, o.Fault = err, "the attack could not be made, which is a fault of the runner or of Prove"
		return o
	case err == nil:
		w.setDown(attack.Class == classFailure)
		err = w.issue(ctx, provider, request)
		w.setDown(false)
	}
	o.Issued, o.Err, o.Fault = err == nil, err, faultOf(attack.Class, err)
	if o.Fault != "" {
		o.Fault += at.lastChange
	}
	return o
}

// faultOf says what is wrong with a provider's answer to a request of a class.
func faultOf(class string, err error) string {
	verdict := csr.Decide(err).Verdict
	switch {
	case errors.Is(err, errPanicked), errors.Is(err, errChanged):
		return err.Error()
	case class == classHonest && err != nil:
		return "an honest request was refused"
	case class == classHonest:
	case err == nil || errors.Is(err, csr.ErrOtherSigner) && !errors.Is(err, csr.CheckSignerName) && !errors.Is(err, csr.Check("provider-unknown")): // this CA would not sign, but another one would
		return "the attack got in"
	case class == classFailure && verdict != csr.VerdictRetry:
		return "what could not be decided was refused for good"
	case class != classFailure && verdict != csr.VerdictDeny && verdict != csr.VerdictIgnore:
		return "this is no refusal: csr.Decide would have the request tried again"
	}
	return ""
}

// Things that a provider never does, whatever it is asked.
var (
	errPanicked = errors.New("the provider panicked")
	errChanged  = errors.New("attesttest: the provider changed the request that it was given")
)

// issue goes from the request to a certificate, as a signer does.
func (w *World) issue(ctx context.Context, provider csr.Provider, request *csr.Request) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%w: %v", errPanicked, value)
		}
	}()
	before, _ := json.Marshal(request)
	verify := provider.VerifyClientAttestationData
	if purpose, err := csr.PurposeOf(request.Spec.SignerName); err == nil && purpose == csr.PurposeServing {
		verify = provider.VerifyServingAttestationData
	}
	attested, err := verify(ctx, request.Parsed())
	if after, _ := json.Marshal(request); !bytes.Equal(before, after) {
		return errChanged
	}
	if err != nil {
		return err
	}
	if attested == nil {
		return &csr.Error{Check: csr.CheckProviderResult, Got: "no result and no error", Want: "one of them"}
	}
	if err := attested.Check(request.Parsed()); err != nil {
		return err
	}
	if _, err := provider.MachineName(ctx, attested); err != nil {
		return err
	}
	_, err = w.ca.Issue(ctx, attested)
	return err
}
