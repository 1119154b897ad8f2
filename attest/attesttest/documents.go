package attesttest

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
)

// Documents are what the author of a kind of evidence by documents (package
// attest/document) gives to a [World], so that [Run] can attack it.
type Documents struct {
	// Kind is the control plane's side, and stands in World.Config.
	Kind attest.Kind
	// Source is the node's side on one of the machines of the world, with the platform's
	// clock standing still at that time. Two of one machine name the same identity.
	Source func(machine string, at time.Time) document.Source
	// Attacker is as Source, but signs the documents with a key of its own.
	Attacker func(machine string, at time.Time) document.Source
}

// forged makes the same for package forge.
func (d *Documents) forged(ctx context.Context, provider string) *forge.Documents {
	return &forge.Documents{
		Provider: provider,
		Identity: func(machine string) string { return string(forge.Must(d.Source(machine, time.Time{}).Machine(ctx))) },
		Sign: func(machine string, at time.Time, value []byte, attacker bool) []byte {
			source := d.Source
			if attacker {
				source = d.Attacker
			}
			return forge.Must(source(machine, at).Document(ctx, value))
		},
	}
}

// join is what an honest machine does: hello, the provider's own challenge, answer.
func (d *Documents) join(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
	prover, err := document.NewProver(a.options.Provider, d.Source(applicant.Machine, a.Now()))
	if err != nil {
		return nil, err
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		return nil, err
	}
	subject := attest.Subject{Request: applicant.Request, SignerName: applicant.Object.Spec.SignerName, ClusterID: ClusterID}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		return nil, err
	}
	object := applicant.Object
	object.Spec.Request = hello.Request
	challenge, err := a.challenge(ctx, &object)
	if err != nil {
		return nil, err
	}
	answer, err := attester.Answer(ctx, challenge, applicant.Key, subject)
	if err != nil {
		return nil, err
	}
	return csr.Parse(answer.Request)
}
