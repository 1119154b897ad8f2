package attesttest

import (
	"context"
	"errors"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
)

// wish is what an applicant asks for. The zero value is node-1, which asks for a
// client certificate with a bootstrap token.
type wish struct {
	machine string                                                                           // "" is MachineOne
	good    func() *forge.Asked                                                              // nil is a bootstrap token for a client certificate
	change  func(*forge.Asked)                                                               // of it
	pem     func(string) string                                                              // changes the PEM
	prove   func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) // nil is honest evidence
}

// errForgery says that an attack could not be made.
var errForgery = errors.New("attesttest: an attack could not be made")

// made turns a step of package forge that failed into an error.
func made[T any](make func() (T, error)) (out T, err error) {
	defer func() {
		if r := recover(); r != nil {
			broken := forge.Recovered(r)
			err = errors.Join(errForgery, broken)
		}
	}()
	return make()
}

// applicant makes the request and the object of a wish.
func (w *World) applicant(i wish) (*Applicant, *forge.Asked) {
	good := i.good
	if good == nil {
		good = w.bench.BootstrapAsks
	}
	asked := good()
	if i.change != nil {
		i.change(asked)
	}
	a := &Applicant{Machine: i.machine, Request: asked.Asks(), Key: asked.PKCS10.Key, Object: *asked.Encode(), join: asked.Join}
	if a.Machine == "" {
		a.Machine = MachineOne
	}
	a.join.Request, a.join.Key, a.Object.Spec.Request = a.Request, a.Key, nil
	return a, asked
}

// make makes the request object of a wish, with honest evidence for what is asked.
func (i wish) make(ctx context.Context, a *attempt) (*csr.Request, error) {
	return made(func() (*csr.Request, error) {
		applicant, asked := a.applicant(i)
		prove := i.prove
		if prove == nil {
			prove = func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
				return a.prove(ctx, applicant)
			}
		}
		bundle, err := prove(ctx, a, applicant)
		if err != nil {
			return nil, err
		}
		request := asked.Filed(bundle)
		if i.pem != nil {
			request.Spec.Request = []byte(i.pem(string(request.Spec.Request)))
		}
		return request, nil
	})
}

// prove makes honest evidence. For TPM evidence the challenge is one of the world's
// own making, so that a provider which refuses to challenge does not hide whether it
// would have let the answer in.
func (a *attempt) prove(ctx context.Context, applicant *Applicant) (*csr.Bundle, error) {
	if a.options.Prove != nil {
		return a.options.Prove(ctx, a.provider, applicant)
	}
	return a.try(ctx).On(applicant.Machine, applicant.join).Bundle(), nil
}

// honest makes a wish with evidence that comes of the provider's own challenge, where
// it has one.
func honest(i wish) func(context.Context, *attempt) (*csr.Request, error) {
	i.prove = func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
		switch {
		case a.options.Prove != nil:
			return a.options.Prove(ctx, a.provider, applicant)
		case a.options.Documents != nil:
			return a.options.Documents.join(ctx, a, applicant)
		}
		return a.try(ctx).Prove(applicant.Machine, applicant.join)
	}
	return i.make
}

// try is the attempt for package forge.
func (a *attempt) try(ctx context.Context) *forge.Try {
	t := &forge.Try{Bench: a.bench, Road: a.road, Challenge: func(hello *csr.Request) (*message.Challenge, error) {
		der, err := a.challenge(ctx, hello)
		if err != nil {
			return nil, err
		}
		return message.ParseChallenge(der)
	}}
	if a.options.Documents != nil {
		t.Documents = a.options.Documents.forged(ctx, a.options.Provider)
	}
	return t
}

// challenge has the provider challenge a hello.
func (a *attempt) challenge(ctx context.Context, hello *csr.Request) ([]byte, error) {
	challenger, ok := a.provider.(csr.Challenger)
	if !ok {
		return nil, forge.Shut("the provider is no csr.Challenger, and WorldOptions.Prove is not set")
	}
	hello.Spec.SignerName = a.challengeSigner
	return challenger.Challenge(ctx, hello.Parsed())
}

// asked is an attack that is a wish.
func asked(class, name, what string, i wish) Attack {
	return Attack{Name: name, Class: class, Description: what, make: i.make}
}
