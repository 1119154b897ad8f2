package attest

import (
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check of a verification; see [refusal.Check]. Every refusal by this package
// is an [*Error] that carries one.
type Check = refusal.Check

// Error is a refusal: the check that failed, the value found and the value wanted; see
// [refusal.Error]. On Kubernetes its Reason is that of the Denied condition. After HelloExpired
// ([CheckHelloExpired]) the node files again.
type Error = refusal.Error

// Checks on which callers branch. The texts of all checks are in the errors.
const (
	// CheckKind: a kind of evidence contradicts its own description. That is a fault in the
	// control plane's program, so it always comes together with [refusal.ErrRetry].
	CheckKind Check = "evidence-kind"
	// CheckMachineClaim: the evidence is from a different machine than the one that the
	// message claims to come from.
	CheckMachineClaim Check = "machine-claim"
	// CheckQualifyingData: a statement covers qualifying data other than that of the
	// challenge: it answers another challenge, or none.
	CheckQualifyingData = message.CheckQualifyingData
	// CheckStatements: the bundle does not hold exactly the statements of a hello or of an
	// answer, in order.
	CheckStatements Check = "bundle-statements"
	// CheckHelloExpired: a hello is older than 5 minutes. The node files
	// again.
	CheckHelloExpired Check = "hello-expired"
	// CheckBindingRoad: the binding is for another road, or for one that is not configured.
	CheckBindingRoad Check = "binding-road"
	// CheckBindingCluster: it is for another cluster.
	CheckBindingCluster Check = "binding-cluster"
	// CheckBindingSigner: it is for another target signer.
	CheckBindingSigner Check = "binding-signer"
	// CheckBindingRequester: it is for another requester (spec.username).
	CheckBindingRequester Check = "binding-requester"
	// CheckBindingExpiration: it is for another spec.expirationSeconds.
	CheckBindingExpiration Check = "binding-expiration"
	// CheckBindingMachineKey: it is for another machine's key.
	CheckBindingMachineKey Check = "binding-machine-key"
	// CheckBindingRequest: it is for another certificate request.
	CheckBindingRequest Check = "binding-request"
	// CheckAnswerLate: the answer was created after the challenge's window.
	CheckAnswerLate Check = "answer-late"
	// CheckAnswerOld: the answer was created more than one hour ago.
	CheckAnswerOld Check = "answer-old"
	// CheckIdentity: evidence states a bad or ambiguous machine identity, or none.
	CheckIdentity Check = "machine-identity"
	// CheckMembership: the [Authorizer] refused the machine.
	CheckMembership Check = "not-a-member"
	// CheckBudget: a request would cost more than it may.
	CheckBudget = message.CheckBudget
)

// Values that other packages have to keep to.
const (
	// MaxRingAge is how old a reading of a shared ring may be: a replica that has not read it for
	// longer than that verifies nothing.
	MaxRingAge = message.MaxRingAge
	// ReasonChallenge is the reason of the condition that carries a challenge.
	ReasonChallenge = message.ReasonChallenge
)
