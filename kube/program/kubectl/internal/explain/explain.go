// Package explain shows the state of a certificate request: each rule with the value found and the
// value required, and who has to act next. It needs read access to requests and records only, none of
// the controller's keys, and marks rules that only the controller can check as unknown.
package explain

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Facts are the inputs of [Explain].
type Facts struct {
	// Request is the object as stored by the API server.
	Request *csr.Request
	// Kinds read the evidence; they need not trust any issuer.
	Kinds []attest.Kind

	// Policy is the controller's policy. Nil means one that serves the request's signer and is
	// otherwise as strict as possible; rules about the inventory are then unknown.
	Policy *csr.Policy
	// ClusterIDs are the names of the cluster that the controller accepts; nil: not known.
	ClusterIDs []string
	// Held finds the records that a claim concerns; nil: they are not known.
	Held func(ctx context.Context, claim membership.Claim) (membership.Held, error)
	// Related are other requests with the same PKCS#10 request: a hello's answer, an answer's
	// hello.
	Related []*csr.Request
	// Notes are the notes of Events about the request, the newest last. Nodes can write Events,
	// so they prove nothing.
	Notes []string
	// Now is the current time.
	Now time.Time
}

// Kept, Broken and Unknown are the states of a [Rule].
const (
	Kept    State = "ok"
	Broken  State = "BROKEN"
	Unknown State = "unknown"
)

// State is the state of a rule.
type State string

// Rule is one rule.
type Rule struct {
	// Name is the name of the check, such as "subject-common-name".
	Name  string
	State State
	// Got is the value found and Want the value required, if the rule is broken; if the state is
	// unknown, Want says who knows. They may contain the requester's text, which
	// [Explanation.WriteText] escapes.
	Got, Want string
}

// The messages that a request can be.
const (
	MessageHello   = "hello"
	MessageAnswer  = "answer"
	MessageServing = "serving request without evidence"
	MessageOther   = "request that nodeattest does not decide"
)

// Explanation is the result.
type Explanation struct {
	// Request is the object to explain.
	Request *csr.Request
	// Message is one of the Message constants.
	Message string
	// NodeName is the node that is asked for, "" if none can be read.
	NodeName string
	// Signer is the signer of the certificate; for a hello, the one that it states.
	Signer string
	// Reading is the evidence as read; nil without evidence that can be read.
	Reading *attest.Message
	// Decision is the condition that decides, or nil.
	Decision *csr.Condition
	// Notes are the notes of [Facts].
	Notes []string
	// Rules are in the order in which they are tried.
	Rules []Rule
	// Next is the next action.
	Next Next

	unread   string // the provider block of evidence that none of the kinds reads
	admitted bool   // the machine has the node's record
	byOther  string // the kind of evidence by which the inventory knows the machine, if it is another
}

// Next is who has to act, and how.
type Next struct{ Who, What string }

// machineUnknown is the Want of a rule that only the inventory can answer.
const machineUnknown = "the controller's inventory decides"

// Explain explains a request.
func Explain(ctx context.Context, f Facts) (*Explanation, error) {
	x := &Explanation{Request: f.Request, Decision: decision(f.Request), Notes: f.Notes, Signer: f.Request.Spec.SignerName}
	parsed := asFiled(f.Request).Parsed()
	evidence := x.readEvidence(&f, parsed)
	x.setMessage(parsed)
	if x.Message == MessageOther {
		x.Next = Next{"the signer's own approver", "nodeattest ignores requests for " + x.Signer}
		return x, nil
	}
	machine := x.addPolicy(ctx, &f, parsed)
	x.Rules = append(x.Rules, evidence...)
	x.addEcho(&f)
	held, err := x.addMembership(ctx, &f, machine)
	if err != nil {
		return nil, err
	}
	x.addDecision()
	x.Next = x.next(&f, held)
	return x, nil
}

// decision returns the condition that decides, or nil.
func decision(r *csr.Request) *csr.Condition {
	for _, kind := range []string{csr.ConditionFailed, csr.ConditionDenied, csr.ConditionApproved} {
		for i := range r.Status.Conditions {
			if c := &r.Status.Conditions[i]; c.Type == kind {
				return c
			}
		}
	}
	return nil
}

// asFiled returns the request as it was before the decision.
func asFiled(r *csr.Request) *csr.Request {
	filed := *r
	filed.Status, filed.Metadata.DeletionTimestamp = csr.Status{}, nil
	return &filed
}

// readEvidence reads the evidence with its kind, and returns the rules about its form.
func (x *Explanation) readEvidence(f *Facts, parsed *csr.Parsed) []Rule {
	bundle, err := parsed.Bundle()
	if err != nil || bundle.Provider == "" {
		return nil // the policy has rules for it
	}
	m, err := attest.ReadMessage(parsed, f.Kinds...)
	known := slices.ContainsFunc(f.Kinds, func(k attest.Kind) bool { return k.Describe().Provider == m.Provider })
	switch {
	case m.Provider != "" && !known:
		x.unread = bundle.Provider
		return []Rule{{Name: string(attest.CheckStatements), State: Unknown, Want: "evidence of " + x.unread + " is not read by this program"}}
	case err != nil:
		return []Rule{broken(err, attest.CheckStatements)}
	}
	if x.Reading = m; m.Stage == attest.StageHello {
		x.Signer = m.TargetSigner
	}
	return []Rule{{Name: string(attest.CheckStatements), State: Kept}}
}

// setMessage sets Message and NodeName.
func (x *Explanation) setMessage(parsed *csr.Parsed) {
	x.Message = MessageOther
	filed := x.Request.Spec.SignerName
	bundle, err := parsed.Bundle()
	evident := err == nil && bundle.Provider != ""
	provider := csr.ProviderOf(filed)
	switch _, purpose := csr.PurposeOf(filed); {
	case isChallenge(filed):
		x.Message = MessageHello
	case filed == csr.SignerKubeletServing:
		x.Message = MessageServing
	case purpose == nil && (provider != "" || evident || filed == csr.SignerKubeAPIServerClientKubelet):
		x.Message = MessageAnswer
	}
	if pkcs10, err := parsed.PKCS10(); err == nil {
		x.NodeName = nodeNameOf(pkcs10.CSR.Subject.CommonName)
	}
}

// broken returns the broken rule that an error names.
func broken(err error, otherwise refusal.Check) Rule {
	if e, ok := errors.AsType[*refusal.Error](err); ok {
		return Rule{Name: string(e.Check), State: Broken, Got: e.Got, Want: e.Want}
	}
	return Rule{Name: string(otherwise), State: Broken, Got: err.Error()}
}
