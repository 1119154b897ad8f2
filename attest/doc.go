// Package attest is the join of a node to a cluster: the node proves which machine it is,
// and the control plane decides with a library call. It knows nothing of TPMs or clouds:
// those are kinds of evidence ([Kind], [Prover]), which packages attest/tpm and
// attest/document have.
//
// # The join
//
// It takes three messages, and each side has two calls. The node:
//
//	hello, err := attester.Hello(ctx, subject)                   // 1: who I am
//	answer, err := attester.Answer(ctx, challenge, key, subject) // 3: the proof
//
// and the control plane:
//
//	challenge, err := verifier.Challenge(ctx, hello) // 2: everything that the proof is bound to
//	result, err := verifier.Verify(ctx, answer)      // who it is
//
// Hello and answer are specs of certificate requests, ready to be filed. On Kubernetes the
// challenge comes back as the message of a Denied condition ([ChallengeDecision],
// [ChallengeOf]).
//
// The answer's evidence covers qualifying data that depends on the challenge, and the
// challenge on the request, the requester, the cluster, the signer and the machine. A
// [Verifier] keeps no list of challenges: any replica with the same [KeyRing] verifies an
// answer.
//
// # Kinds of evidence
//
// A Verifier takes several kinds at once. The signer name of a request selects one. What a
// kind states is held against what it declared of itself: it cannot skip a check of the
// join, name a machine in another's way, or claim more certainty than it has. A [Result]
// has the facts of the join, each with its [Standing], and the kind's own in Details.
//
// # Membership
//
// A root of trust admits every machine that its issuer ever certified, so an [Authorizer]
// has the last word: whether this machine may be this node. Package attest/membership has
// a list, trust on first use over a registry (which says yes to the first machine under a
// name), and what admits as both of two do.
//
// # Verifier or provider
//
// Where a control plane has kinds of this package alone, it calls the Verifier. Where it
// has providers that are not, such as GKE's dialect or one of its own, it registers the
// Verifier's kinds beside them ([Verifier.Registrations]) and calls [csr.Providers], which
// ends in the same decision.
//
// # Errors
//
// A refusal is an [*Error] whose [Check] names what failed, or a
// [csr.Errors]; what could not be decided wraps [csr.ErrRetry]. [csr.Decide]
// turns either into the decision for the request object, and [csr.Decision.For] says
// where that is written. No error holds a secret.
package attest
