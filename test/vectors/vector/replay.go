package vector

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// Replay passes the vector's input to the function of its level, in the common environment as
// changed by the vector. It returns nil if everything happens as the vector expects, and
// otherwise an error that says what happened.
func (v *Vector) Replay(ctx context.Context, common *Environment) error {
	return v.conclude(v.run(ctx, common.With(v.Environment)))
}

// conclude compares what happened with the expectation.
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

// brokenVector is an error for a vector that cannot be replayed: it does not answer its
// question.
type brokenVector struct{ err error }

func (b *brokenVector) Error() string { return "it cannot be replayed: " + b.err.Error() }

// each applies parse to every value; nil gives nil. An error is a failure, which makes the
// vector a broken one.
func each[A, B any](in []A, parse func(A) (B, error)) (out []B) {
	if in != nil {
		out = []B{}
	}
	for _, a := range in {
		out = append(out, forge.Must(parse(a)))
	}
	return out
}

// levels are the levels, each with the field of a Vector that is its input, and what replays
// it.
func levels() map[string]level {
	return map[string]level{
		LevelVerify:      {"Object", (*Vector).verify},
		LevelChallenge:   {"Object", (*Vector).challenge},
		LevelRequest:     {"Object", (*Vector).checkRequest},
		LevelNode:        {"Node", func(v *Vector, ctx context.Context, _ *Environment) (*Result, error) { return nil, v.Node.answer(ctx) }},
		LevelStatement:   {"Statement", func(v *Vector, _ context.Context, _ *Environment) (*Result, error) { return v.Statement.verify() }},
		LevelBundle:      {"Bundle", func(v *Vector, _ context.Context, _ *Environment) (*Result, error) { return nil, v.Bundle.parse() }},
		LevelProviderID:  {"Extensions", (*Vector).parseProviderID},
		LevelGCEInstance: {"Value", (*Vector).parseGCEInstance},
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

// SetInput sets the input of the only level that has an input of that type.
func (v *Vector) SetInput(in any) {
	for name, l := range levels() {
		if field := reflect.ValueOf(v).Elem().FieldByName(l.input); field.Type() == reflect.TypeOf(in) {
			v.Level = name
			field.Set(reflect.ValueOf(in))
		}
	}
}

func (v *Vector) run(ctx context.Context, e *Environment) (found *Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &brokenVector{forge.Recovered(r)}
		}
	}()
	l, ok := levels()[v.Level]
	if !ok {
		return nil, &brokenVector{fmt.Errorf("unknown level %q", v.Level)}
	}
	return l.run(v, ctx, e)
}

func (v *Vector) verify(ctx context.Context, e *Environment) (*Result, error) {
	r, err := e.verifier().Verify(ctx, v.Object.Request)
	if err != nil {
		return nil, err
	}
	return &Result{NodeName: r.NodeName, Machine: string(r.Machine), Profile: tpm.DetailsOf(r).Profile,
		ProviderID: r.Granted.ProviderID, TPMResident: &r.TPMResident}, nil
}

// challenge returns the binding with the nonce that the vector has, after checking, on
// the road of the AK, that the secret is derived from the verifier's own nonce. On the road of
// the EK certificate the secret is in a credential, which only the EK's TPM can open.
func (v *Vector) challenge(ctx context.Context, e *Environment) (*Result, error) {
	der, err := e.verifier().Challenge(ctx, v.Object.Request)
	if err != nil {
		return nil, err
	}
	c, err := message.ParseChallenge(der)
	if err != nil {
		return nil, err
	}
	if c.Binding.Road == message.RoadAK && !e.gave(c, c.Clear) {
		return nil, errors.New("the challenge's secret does not follow from its binding")
	}
	if v.Result == nil || v.Result.Binding == nil {
		return &Result{}, nil
	}
	c.Binding.Nonce = forge.Must(message.ParseBinding(v.Result.Binding)).Nonce
	same, err := c.Binding.Marshal()
	return &Result{Binding: same}, err
}

// gave reports whether a challenge's secret is derived from its binding, if that is under one
// of the challenge keys.
func (e *Environment) gave(c *message.Challenge, secret []byte) bool {
	binding := forge.Must(c.Binding.Marshal())
	return !slices.ContainsFunc(e.RingKeys, func(k RingKey) bool {
		return k.ID == hex.EncodeToString(c.Binding.KeyID[:]) && !bytes.Equal(secret, forge.Secret(k.Secret, binding))
	})
}

func (v *Vector) checkRequest(ctx context.Context, e *Environment) (*Result, error) {
	var checked *csr.Checked
	var err error
	if policy := e.policy(); v.TargetSigner == "" {
		checked, err = policy.Check(ctx, v.Object.Parsed())
	} else if checked, err = policy.CheckUnsigned(ctx, v.Object.Parsed(), v.TargetSigner); err == nil {
		err = checked.CheckSignature()
	}
	if err != nil {
		return nil, err
	}
	return &Result{NodeName: checked.NodeName(), ProviderID: checked.ClaimedProviderID().Unproven()}, nil
}

// parse also compares an accepted input with its own encoding.
func (b *Bundle) parse() error {
	switch b.Format {
	case "proposal":
		_, err := csr.ParseProposal(b.PEM)
		return err
	case "":
		parsed, err := csr.Parse(b.PEM)
		if err != nil {
			return err
		}
		return sameAgain(b.PEM, parsed.Marshal)
	}
	return &brokenVector{fmt.Errorf("unknown format %q", b.Format)}
}

// sameAgain checks that a parsed value is marshalled to the same bytes again.
func sameAgain(want []byte, marshal func() ([]byte, error)) error {
	again, err := marshal()
	if err == nil && !bytes.Equal(again, want) {
		return &brokenVector{errors.New("what it encodes to is something else")}
	}
	return err
}

func (v *Vector) parseProviderID(context.Context, *Environment) (*Result, error) {
	id, err := oid.ParseProviderID(each(v.Extensions, func(e Extension) (pkix.Extension, error) {
		name, ok := forge.Must(oid.Parse(e.ID)).ASN1()
		if !ok {
			return pkix.Extension{}, fmt.Errorf("extension %s", e.ID)
		}
		return pkix.Extension{Id: name, Critical: e.Critical, Value: e.Value}, nil
	}))
	return &Result{ProviderID: id}, err
}

func (v *Vector) parseGCEInstance(context.Context, *Environment) (*Result, error) {
	i, err := oid.ParseGCEInstance(v.Value)
	if err != nil {
		return nil, err
	}
	return &Result{Machine: fmt.Sprintf("gce:%s/%d", i.ProjectID, i.InstanceID)}, sameAgain(v.Value, i.Marshal)
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
	if got := names(err); !slices.Equal(got, sorted(append([]string{v.Expect}, v.Also...))) {
		return fmt.Errorf("got %q, want %q and %q: %w", got, v.Expect, v.Also, err)
	}
	if v.Cause != "" && !errors.Is(err, attest.Check(v.Cause)) {
		return fmt.Errorf("want %s because of %s: %w", v.Expect, v.Cause, err)
	}
	if retry := errors.Is(err, refusal.ErrRetry); retry != v.Retry {
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

// names returns the stable names in an error: the refusing check, not its cause.
// Rules are sorted, each once.
func names(err error) []string {
	switch e := outermost(err).(type) { //nolint:errorlint // outermost has walked the tree
	case csr.Errors:
		var out []string
		for _, v := range e {
			out = append(out, string(v.Check))
		}
		return sorted(out)
	case *refusal.Error:
		return []string{string(e.Check)}
	case forge.CredentialFault:
		return []string{string(e)}
	}
	return nil
}

// outermost returns the first error in the tree of err that is a refusal by one of the
// packages under test, or nil. That a question may be asked again is not a refusal.
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
	return differs(*found, *r)
}

// differs returns an error for the first field of a struct that is wanted, that is, not zero,
// and that differs.
func differs(got, want any) error {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range w.NumField() {
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); !w.Field(i).IsZero() && !reflect.DeepEqual(a, b) {
			return fmt.Errorf("%s: got %v, want %v", w.Type().Field(i).Name, a, b)
		}
	}
	return nil
}

// publicKey reads a SubjectPublicKeyInfo; nil gives nil.
func publicKey(spki []byte) any {
	if spki == nil {
		return nil
	}
	return forge.Must(x509.ParsePKIXPublicKey(spki))
}
