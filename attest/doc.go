// Package attest joins a node to a cluster: the node proves which machine it is, and the
// control plane decides with a library call. It knows nothing of TPMs or clouds: those are
// kinds of evidence ([Kind], [Prover]), found in packages attest/tpm and attest/document.
//
// # The join
//
// A join takes three messages, and each side makes two calls. The node:
//
//	hello, err := attester.Hello(ctx, subject)                   // 1: who I am
//	answer, err := attester.Answer(ctx, challenge, key, subject) // 3: the proof
//
// and the control plane:
//
//	challenge, err := verifier.Challenge(ctx, hello) // 2: everything that the proof is bound to
//	result, err := verifier.Verify(ctx, answer)      // who it is
//
// The hello and the answer are specs of certificate requests, ready to be filed. On Kubernetes
// the challenge comes back as the message of a Denied condition ([ChallengeDecision],
// [ChallengeOf]).
//
// The answer's evidence covers qualifying data that depends on the challenge, and the
// challenge depends on the request, the requester, the cluster, the signer and the machine. A
// [Verifier] keeps no list of challenges: any replica with the same [KeyRing] can verify an
// answer.
//
// # Kinds of evidence
//
// A Verifier takes several kinds at once. The signer name of a request selects one. Each kind has its
// own versions of its data format, and can read several. Its findings are checked against its
// [Description]: it cannot skip a check of the join, use the identities of another kind, or claim more
// certainty than it declared. A [Result] has the facts of the join, each with its [Standing], and the
// kind's own in Details.
//
// # Membership
//
// A root of trust covers every machine that its issuer ever certified, so an [Authorizer] decides
// last whether this machine may be this node. Package attest/membership has a list, trust on first
// use over a registry (which admits the first machine under a name), and an authorizer that admits a
// machine if two others both do.
//
// # Other providers
//
// Where a control plane has only kinds of this package, it calls the Verifier. Where it also
// has other providers of package csr, the Verifier is one of them, for its own signers
// ([Verifier.SignerNames], [Verifier.ChallengeSigners]), and [csr.Verify] ends in the same
// decision.
//
// # Errors
//
// A refusal is an [*Error] with the [Check] that failed, or a [csr.Errors]; an error that wraps
// [refusal.ErrRetry] means that no decision was possible. [csr.Decide] turns either into the decision
// for the request object, and no error into a retry: an approval is made by
// [csr.Attested.Decision] of [Result.Attested]. [csr.UnplacedDecision.For] says where to write it. No
// error holds a secret.
package attest
