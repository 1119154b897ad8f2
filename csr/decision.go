package csr

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// Verdict is what to do with a request.
type Verdict int

// The five verdicts. The zero value is VerdictRetry, so that a zero Decision decides
// nothing.
const (
	// VerdictRetry leaves the request as it is, to be checked again later.
	VerdictRetry Verdict = iota
	// VerdictDeny refuses for good: on Kubernetes, with a Denied condition, which never goes
	// away. The node has to file another request.
	VerdictDeny
	// VerdictApprove accepts.
	VerdictApprove
	// VerdictIgnore leaves the request as it is, for good: it is already finished (it has a
	// certificate, is denied or failed, or is being deleted), or it belongs to another
	// signer. A controller is called again after each of its own writes, so it sees every
	// request that it has decided a second time.
	VerdictIgnore
	// VerdictFail refuses for good a request that has already been approved, by anyone. An
	// API server lets no request be both Approved and Denied, so all that is left is a
	// Failed condition, written to the status subresource. That needs the verb update on
	// certificatesigningrequests/status and the verb sign on the signer. An API server also
	// accepts Failed through the approval subresource, for a controller that may approve for
	// a signer but not sign.
	VerdictFail
)

// String returns "retry", "deny", "approve", "ignore", "fail", or "verdict(<number>)".
func (v Verdict) String() string {
	return nameOf("verdict", int(v), "retry", "deny", "approve", "ignore", "fail")
}

// What decisions write into a request. kube-apiserver allows the three conditions only the
// status "True", and never lets one be removed. A writer of either subresource needs a
// permission for the signer in addition to the one for the subresource: "approve" for approval,
// "sign" for status (Kubernetes, "Certificates and Certificate Signing Requests",
// "Authorization"). The reasons belong to decisions that are not named after a rule.
const (
	ConditionApproved = "Approved" // an approver has said yes
	ConditionDenied   = "Denied"   // final
	ConditionFailed   = "Failed"   // the signer gave up; final

	SubresourceApproval = "approval" // accepts Approved and Denied
	SubresourceStatus   = "status"   // accepts Failed, and the certificate

	ReasonApproved = "RequestAccepted" // of every approval
	ReasonRetry    = "TryAgain"        // nothing could be decided
)

const (
	reasonIgnored = "NothingToDecide" // there is nothing to decide
	reasonRefused = "RequestRefused"  // a refusal gives no usable reason of its own

	// The maximum lengths of the reason and message of a [Decision], in bytes. Both are shown
	// by kubectl, read by people, and stored with the request.
	maxReasonSize  = 128
	maxMessageSize = 2048
)

// UnplacedDecision is a decision without the object that it is about: it has neither a condition nor a
// place to write one, so it cannot be written. [UnplacedDecision.For] makes the [Decision] of it.
type UnplacedDecision struct {
	// Verdict, Reason, Message and Detail are as in [Decision]. For may change the verdict: a request
	// that is finished is ignored, and one that is approved can only fail.
	Verdict                 Verdict
	Reason, Message, Detail string

	uid string // of the object that was verified; "" unless the verdict is to approve
}

// Decision is a verdict in the form of a condition of a CertificateSigningRequest, with the
// place to write it. [UnplacedDecision.For] makes it for one object.
//
// A writer takes the object that was checked, appends the condition to those already there,
// leaves the conditions of others as they are, and updates the subresource with the object's
// own UID and resourceVersion. If the object has changed since, or was deleted and recreated
// under the same name, the API server answers with a conflict (409): then nothing was
// written, and the request has to be checked again. An object that is fetched again for the
// write is one that has not been checked.
type Decision struct {
	// Verdict is what to do.
	Verdict Verdict
	// Condition is the type of the condition to write, with the status "True":
	// ConditionApproved, ConditionDenied or ConditionFailed. It is "" if nothing is to be
	// written: to retry, to ignore, and to approve an approved request again.
	Condition string
	// Subresource is where to write the condition: SubresourceApproval or SubresourceStatus,
	// or "" if Condition is "".
	Subresource string
	// UID and ResourceVersion identify the object that was checked, as [UnplacedDecision.For]
	// found them: the decision is about that object only.
	UID, ResourceVersion string
	// Reason is one CamelCase word of ASCII letters and digits, beginning with a
	// letter, 1 to 128 bytes. For a violation it is the rule's name:
	// subject-common-name gives SubjectCommonName.
	Reason string
	// Message is for people: printable UTF-8 in one line, at most 2048 bytes.
	// Anyone who may read the request can read it, including every holder of a bootstrap
	// token. So for a refusal that names other nodes, or the machine that a node is, it has
	// only the names of the checks.
	Message string
	// Detail is the full reason for such a refusal, in the same form, and "" if Message is
	// already the full reason. It is for the log and the Event of the controller that
	// decides. It holds no secret as long as the errors that it comes from hold none.
	Detail string
}

// Decide turns the error of a check into a decision about a request that no approver has
// approved. It never approves: [Attested.Decision] does. [UnplacedDecision.For] fits either to the
// object, and nothing else gives it a condition to write.
//
//   - nil means retry: that nothing was refused does not say that anything was proven.
//   - A request that is finished ([CheckRequestClosed]) is ignored, and so is one filed
//     under a signer that the policy does not serve ([ErrOtherSigner]): nothing is to be
//     written, and the controller need not look at it again.
//   - A [*Error], [Errors], or any error with a method DenyReason() string, anywhere in the
//     tree of err, denies, even if other parts of the tree could not be decided: a request that is
//     wrong stays wrong. The method's result is the reason.
//   - [refusal.ErrRetry], [refusal.CheckConfig], context.Canceled, context.DeadlineExceeded and
//     every error of an unknown kind mean retry. So does a refusal that was itself caused by
//     one of the first four: its question has no answer yet.
func Decide(err error) UnplacedDecision {
	switch {
	case err == nil:
		return UnplacedDecision{Verdict: VerdictRetry, Reason: ReasonRetry, Message: "no error, and nothing that was verified"}
	case errors.Is(err, CheckRequestClosed), errors.Is(err, ErrOtherSigner):
		return UnplacedDecision{Verdict: VerdictIgnore, Reason: reasonIgnored, Message: cleanMessage(err.Error())}
	}
	if reason, ok := refusedWith(err); ok {
		d := UnplacedDecision{Verdict: VerdictDeny, Reason: cleanReason(reason), Message: cleanMessage(err.Error())}
		if slices.ContainsFunc(hiddenChecks, func(c Check) bool { return errors.Is(err, c) }) {
			d.Detail, d.Message = d.Message, cleanMessage(strings.Join(checkNames(err), ", ")+"; the log and the Event of the controller say more")
		}
		if e, ok := errors.AsType[noMachine](err); ok && e.said.Error() != ErrNoMachine.Error() {
			d.Detail = cleanMessage("the inventory: " + e.said.Error() + "; " + cmp.Or(d.Detail, d.Message))
		}
		return d
	}
	return UnplacedDecision{Verdict: VerdictRetry, Reason: ReasonRetry, Message: cleanMessage(err.Error())}
}

// For fits a decision to the object that it is about, as it was when it was checked:
//
//   - A request that is finished is ignored, whatever the check found.
//   - An approved request that is to be denied is failed instead. Until that is written, its
//     signer may sign it: anyone else who can approve for a signer decides for it.
//   - An approved request that is to be approved needs no second condition: the verdict
//     stays, and nothing is to be written. A signer then goes on to sign.
//
// Conditions of other types than [ConditionApproved], [ConditionDenied] and
// [ConditionFailed] belong to others and decide nothing. A decision for a nil request is to
// retry, and so is one for an object with another UID.
func (d UnplacedDecision) For(r *Request) Decision {
	if r == nil {
		return Decision{Verdict: VerdictRetry, Reason: ReasonRetry, Message: "no request"}
	}
	if d.uid != "" && d.uid != r.Metadata.UID {
		d = UnplacedDecision{Verdict: VerdictRetry, Reason: ReasonRetry,
			Message: "a decision about object " + refusal.Quote(d.uid) + ", and this is " + refusal.Quote(r.Metadata.UID)}
	}
	var condition, subresource string
	approved := r.HasCondition(ConditionApproved)
	switch faults := r.closed(); {
	case len(faults) > 0:
		d = UnplacedDecision{Verdict: VerdictIgnore, Reason: reasonIgnored, Message: strings.Join(faults, ", ")}
	case d.Verdict == VerdictFail, d.Verdict == VerdictDeny && approved:
		d.Verdict, condition, subresource = VerdictFail, ConditionFailed, SubresourceStatus
	case d.Verdict == VerdictDeny:
		condition, subresource = ConditionDenied, SubresourceApproval
	case d.Verdict == VerdictApprove && !approved:
		condition, subresource = ConditionApproved, SubresourceApproval
	}
	return Decision{Verdict: d.Verdict, Condition: condition, Subresource: subresource,
		UID: r.Metadata.UID, ResourceVersion: r.Metadata.ResourceVersion, Reason: d.Reason, Message: d.Message, Detail: d.Detail}
}

// refusedWith finds the first definite refusal in the tree of err and its reason.
func refusedWith(err error) (reason string, ok bool) {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case *Error:
		return e.Reason(), e != nil && !undecided(e) // an undecided cause leaves the question open
	case interface{ DenyReason() string }:
		return e.DenyReason(), !undecided(err)
	}
	for _, inner := range causes(err) {
		if reason, ok := refusedWith(inner); ok {
			return reason, true
		}
	}
	return "", false
}

// hiddenChecks are the checks whose refusals would tell the requester facts about others: which
// machine is which node. The first two belong to package attest.
var hiddenChecks = []Check{"not-a-member", "provider-id", CheckMachineNotReady, CheckMachineOtherNode, CheckProviderIDMismatch, checkProviderIDNotVouched,
	CheckSANNotOwn, CheckCredential, checkInheritedMachine, checkInheritedNode, checkInventoryMachine}

// checkNames returns the names of the checks in the tree of err.
func checkNames(err error) (names []string) {
	if c, ok := err.(Check); ok { //nolint:errorlint // this walks the tree itself
		return []string{string(c)}
	}
	for _, inner := range causes(err) {
		names = append(names, checkNames(inner)...)
	}
	return names
}

// causes returns the errors that err wraps.
func causes(err error) []error {
	switch e := err.(type) { //nolint:errorlint // its callers walk the tree
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}
	}
	return nil
}

func undecided(err error) bool {
	return errors.Is(err, refusal.ErrRetry) || errors.Is(err, refusal.CheckConfig) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// cleanReason keeps the characters that a condition's reason may have.
func cleanReason(s string) string {
	s = strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			return c
		}
		return -1
	}, s)
	s = strings.TrimLeft(s, "0123456789")
	return cmp.Or(s[:min(len(s), maxReasonSize)], reasonRefused)
}

// cleanMessage makes a message printable, of one line and of bounded size.
func cleanMessage(s string) string {
	const more = " ..."
	s = refusal.Escape(s)
	if len(s) <= maxMessageSize {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessageSize-len(more)], "") + more // without half a character at the end
}
