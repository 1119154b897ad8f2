package vector

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Replay gives the vector's input to the function of its level, in the common
// environment as the vector changes it. It returns nil if all that happens is what
// the vector expects, else an error that says what happened.
func (v *Vector) Replay(ctx context.Context, common *Environment) error {
	found, err := v.run(ctx, common.With(v.Environment))
	return v.conclude(found, err)
}

// conclude holds what happened against the expectation.
func (v *Vector) conclude(found *Result, err error) error {
	if broken := (*brokenVector)(nil); errors.As(err, &broken) {
		return broken
	}
	if err := v.judge(err); err != nil {
		return err
	}
	if v.Expect == "" && v.Result != nil {
		return v.Result.compare(found)
	}
	return nil
}

// brokenVector is a vector that cannot be replayed: no answer to its question.
type brokenVector struct{ err error }

func (b *brokenVector) Error() string { return "it cannot be replayed: " + b.err.Error() }

// levels are the field of a Vector that is the input of a level, and what replays it.
func levels() map[string]level {
	return map[string]level{
		LevelVerify:      {"Object", (*Vector).verify},
		LevelChallenge:   {"Object", (*Vector).challenge},
		LevelRequest:     {"Object", (*Vector).checkRequest},
		LevelNode:        {"Node", func(v *Vector, ctx context.Context, _ *Environment) (*Result, error) { return nil, v.Node.answer(ctx) }},
		LevelStatement:   {"Statement", func(v *Vector, _ context.Context, _ *Environment) (*Result, error) { return v.Statement.verify() }},
		LevelBundle:      {"Bundle", func(v *Vector, _ context.Context, _ *Environment) (*Result, error) { return nil, v.Bundle.parse() }},
		LevelProviderID:  {"Extensions", func(v *Vector, _ context.Context, _ *Environment) (*Result, error) { return v.parseProviderID() }},
		LevelGCEInstance: {"Value", func(v *Vector, _ context.Context, _ *Environment) (*Result, error) { return parseGCEInstance(v.Value) }},
		LevelQuote:       {"Quote", func(v *Vector, _ context.Context, _ *Environment) (*Result, error) { return v.Quote.verify() }},
		LevelEK:          {"EK", func(v *Vector, ctx context.Context, e *Environment) (*Result, error) { return v.EK.verify(ctx, e) }},
		LevelCredential:  {"Credential", func(v *Vector, _ context.Context, e *Environment) (*Result, error) { return v.Credential.open(e) }},
		LevelRegistry: {"Registry", func(v *Vector, ctx context.Context, _ *Environment) (*Result, error) {
			return nil, replayMemory(ctx, v.Registry)
		}},
		LevelToken: {"Token", func(v *Vector, ctx context.Context, _ *Environment) (*Result, error) { return nil, v.Token.verify(ctx) }},
		LevelSigner: {"Signer", func(v *Vector, ctx context.Context, e *Environment) (*Result, error) {
			return nil, v.Signer.sign(ctx, e)
		}},
		LevelBoot: {"Boot", func(v *Vector, ctx context.Context, _ *Environment) (*Result, error) { return nil, v.Boot.judge(ctx) }},
	}
}

// level says how a vector is replayed.
type level struct {
	input string
	run   func(*Vector, context.Context, *Environment) (*Result, error)
}

func (v *Vector) run(ctx context.Context, e *Environment) (*Result, error) {
	l, ok := levels()[v.Level]
	if !ok {
		return nil, &brokenVector{fmt.Errorf("unknown level %q", v.Level)}
	}
	return l.run(v, ctx, e)
}

func (v *Vector) verify(ctx context.Context, e *Environment) (*Result, error) {
	verifier, err := e.verifier()
	if err != nil {
		return nil, &brokenVector{err}
	}
	r, err := verifier.Verify(ctx, v.Object)
	if err != nil {
		return nil, err
	}
	return &Result{NodeName: r.NodeName, Machine: string(r.Machine), Profile: tpm.DetailsOf(r).Profile,
		ProviderID: r.Authorization.ProviderID, TPMResident: &r.TPMResident}, nil
}

// challenge gives back the binding with the nonce that the vector has, once the
// secret has been found to follow from the verifier's own. On the road of the EK
// certificate the secret is in a credential, which only the EK's TPM opens.
func (v *Vector) challenge(ctx context.Context, e *Environment) (*Result, error) {
	der, err := e.Challenge(ctx, v.Object)
	if err != nil {
		return nil, err
	}
	c, err := message.ParseChallenge(der)
	if err != nil {
		return nil, err
	}
	drawn, err := c.Binding.Marshal()
	if err != nil {
		return nil, err
	}
	for i := range e.RingKeys {
		if k := &e.RingKeys[i]; c.Binding.Road == message.RoadAK && k.ID == hex.EncodeToString(c.Binding.KeyID[:]) && !bytes.Equal(c.Clear, forge.Secret(k.Secret, drawn)) {
			return nil, errors.New("the challenge's secret does not follow from its binding")
		}
	}
	if v.Result == nil || v.Result.Binding == nil {
		return &Result{}, nil
	}
	want, err := message.ParseBinding(v.Result.Binding)
	if err != nil {
		return nil, &brokenVector{err}
	}
	c.Binding.Nonce = want.Nonce
	same, err := c.Binding.Marshal()
	return &Result{Binding: same}, err
}

func (v *Vector) checkRequest(ctx context.Context, e *Environment) (*Result, error) {
	policy, err := e.policy()
	if err != nil {
		return nil, &brokenVector{err}
	}
	var checked *csr.Checked
	if v.TargetSigner == "" {
		checked, err = policy.Check(ctx, v.Object.Parsed())
	} else if checked, err = policy.CheckUnsigned(ctx, v.Object.Parsed(), v.TargetSigner); err == nil {
		err = checked.CheckSignature()
	}
	if err != nil {
		return nil, err
	}
	return &Result{NodeName: checked.NodeName(), ProviderID: checked.ClaimedProviderID()}, nil
}

// parse also holds what is accepted against what it encodes to.
func (b *Bundle) parse() error {
	switch b.Format {
	case "proposal":
		_, err := csr.ParseProposal(b.PEM)
		return err
	case "gke":
		_, err := csr.ParseGKE(b.PEM)
		return err
	case "":
		parsed, err := csr.Parse(b.PEM)
		if err != nil {
			return err
		}
		again, err := parsed.Marshal()
		if err == nil && !bytes.Equal(again, b.PEM) {
			return &brokenVector{errors.New("what it encodes to is another text")}
		}
		return err
	}
	return &brokenVector{fmt.Errorf("unknown format %q", b.Format)}
}

func (v *Vector) parseProviderID() (*Result, error) {
	var extensions []pkix.Extension
	for _, e := range v.Extensions {
		id, err := oid.Parse(e.ID)
		if err != nil {
			return nil, &brokenVector{err}
		}
		name, ok := id.ASN1()
		if !ok {
			return nil, &brokenVector{fmt.Errorf("extension %s", e.ID)}
		}
		extensions = append(extensions, pkix.Extension{Id: name, Critical: e.Critical, Value: e.Value})
	}
	id, err := oid.ParseProviderID(extensions)
	return &Result{ProviderID: id}, err
}

func parseGCEInstance(der []byte) (*Result, error) {
	i, err := oid.ParseGCEInstance(der)
	if err != nil {
		return nil, err
	}
	again, err := i.Marshal()
	if err == nil && !bytes.Equal(again, der) {
		return nil, &brokenVector{errors.New("what it marshals to is another value")}
	}
	return &Result{Machine: fmt.Sprintf("gce:%s/%d", i.ProjectID, i.InstanceID)}, err
}

// judge compares an error with the expectation.
func (v *Vector) judge(err error) error {
	if v.Expect == "" {
		if err != nil {
			return fmt.Errorf("refused: %w", err)
		}
		return nil
	}
	if err == nil {
		return fmt.Errorf("accepted, want %s", v.Expect)
	}
	if got := names(err, v.Package); !slices.Equal(got, sorted(append([]string{v.Expect}, v.Also...))) {
		return fmt.Errorf("got %q of package %s, want %q and %q: %w", got, v.Package, v.Expect, v.Also, err)
	}
	if v.Cause != "" && !errors.Is(err, attest.Check(v.Cause)) {
		return fmt.Errorf("want %s because of %s: %w", v.Expect, v.Cause, err)
	}
	if retry := errors.Is(err, csr.ErrRetry); retry != v.Retry {
		return fmt.Errorf("to be tried again: %v, want %v: %w", retry, v.Retry, err)
	}
	want := csr.VerdictDeny
	switch {
	case errors.Is(err, csr.CheckRequestClosed), errors.Is(err, csr.ErrOtherSigner):
		want = csr.VerdictIgnore
	case v.Retry:
		want = csr.VerdictRetry
	}
	decides := v.Level == LevelVerify || v.Level == LevelChallenge || v.Level == LevelRequest
	if d := csr.Decide(err); decides && d.Verdict != want {
		return fmt.Errorf("the decision is %v, want %v: %w", d.Verdict, want, err)
	}
	return nil
}

// names returns the stable names of one package in an error: what refused, and not
// what some other package found and is only the cause. Rules come sorted, each once.
func names(err error, pkg string) []string {
	switch e := outermost(err).(type) { //nolint:errorlint // outermost has walked the tree
	case csr.Errors:
		if pkg != PackageCSR {
			return nil
		}
		var out []string
		for _, v := range e {
			out = append(out, string(v.Check))
		}
		return sorted(out)
	case *refusal.Error:
		if pkg != PackageTPM && errors.Is(err, e.Check) {
			return []string{string(e.Check)}
		}
	case forge.CredentialFault:
		if pkg == PackageTPM {
			return []string{string(e)}
		}
	}
	return nil
}

// outermost returns the first error in the tree of err that is a refusal of one of the
// packages under test, or nil. That a question may be asked again is no refusal.
func outermost(err error) error {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case csr.Errors, forge.CredentialFault:
		return err
	case *refusal.Error:
		if e.Check != refusal.ErrRetry {
			return err
		}
		return outermost(e.Err)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if found := outermost(inner); found != nil {
				return found
			}
		}
	case interface{ Unwrap() error }:
		return outermost(e.Unwrap())
	}
	return nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// compare returns an error for the first member that is set and differs.
func (r *Result) compare(found *Result) error {
	if found == nil {
		return errors.New("no result to compare")
	}
	for _, m := range []struct{ name, got, want string }{
		{"nodeName", found.NodeName, r.NodeName},
		{"machine", found.Machine, r.Machine},
		{"profile", found.Profile, r.Profile},
		{"providerID", found.ProviderID, r.ProviderID},
		{"binding", string(found.Binding), string(r.Binding)},
		{"value", string(found.Value), string(r.Value)},
		{"source", found.Source, r.Source},
		{"secret", string(found.Secret), string(r.Secret)},
	} {
		if m.want != "" && m.got != m.want {
			return fmt.Errorf("%s: got %q, want %q", m.name, m.got, m.want)
		}
	}
	if r.Tolerances != nil && !slices.Equal(found.Tolerances, r.Tolerances) {
		return fmt.Errorf("tolerances: got %q, want %q", found.Tolerances, r.Tolerances)
	}
	if err := compareFlag("clockTrusted", found.ClockTrusted, r.ClockTrusted); err != nil {
		return err
	}
	return compareFlag("tpmResident", found.TPMResident, r.TPMResident)
}

// compareFlag compares where a value is wanted.
func compareFlag(name string, got, want *bool) error {
	if want != nil && (got == nil || *got != *want) {
		return fmt.Errorf("%s: want %v", name, *want)
	}
	return nil
}

// publicKey reads a SubjectPublicKeyInfo; nil gives nil.
func publicKey(spki []byte) (any, error) {
	if spki == nil {
		return nil, nil
	}
	return x509.ParsePKIXPublicKey(spki)
}
