// Package attest makes and verifies a node's TPM evidence: that a machine with a
// certified attestation key (AK) asks for the certificate of one TLS key, now.
//
// # The join
//
// It takes three messages, and each side has two calls. The node:
//
//	bundle, err := attester.Hello(ctx, subject)                 // 1: who I am
//	bundle, err := attester.Answer(ctx, challenge, key, subject) // 3: the proof
//
// and the control plane:
//
//	challenge, err := verifier.Challenge(ctx, hello)  // 2: everything that the proof is bound to
//	result, err := verifier.Verify(ctx, answer)       // who it is
//
// The answer is a TPM2_Certify statement: the AK signs the Name of the TLS key
// together with qualifying data that depends on the challenge, and the challenge
// on the request, the requester, the cluster, the signer and the machine's key. A
// [Verifier] keeps no list of challenges: any replica with the same [KeyRing]
// verifies an answer.
//
// # Trust
//
// On the road of the AK certificate ([RoadAK]) that certificate chains to roots
// that the control plane chose ([Issuer]), under a [Profile] that says what this
// issuer's certificates look like. That the AK is restricted and lives in a TPM is
// then the issuer's word.
//
// On the road of the EK ([RoadEK]) the TPM's endorsement key is trusted, by its
// certificate or by a list ([EKVerifier]). The challenge's secret is in a credential
// that opens only in the TPM of that EK and only for an AK with the very public area
// that the node sent: so the AK's attributes are proven.
//
// A root admits every machine that its issuer ever certified, so an [Authorizer]
// has the last word: whether this machine may be this node. Package attest/membership has
// a list, trust on first use over a registry (which says yes to the first machine under a
// name), and what admits as both of two do.
//
// # Measurements
//
// An answer can carry a TPM2_Quote over the same challenge by the same AK
// (AttesterOptions.Quote) and the firmware's event log. A [QuotePolicy] of the verifier
// decides about it: [PCRPolicy] by exact values, package attest/eventlog by the events
// of the replayed log, Secure Boot among them. What a quote does not cover is an error
// and never a default.
//
// # Keys in the TPM
//
// The TLS key may be in memory ([SoftwareKey]) or in the TPM ([CreateTPMKey]); either
// is a crypto.Signer that makes the request and that Answer certifies. A TPM's key
// serves crypto/tls, is kept in a file that other programs read too ([TPMKeyFile],
// [LoadTPMKey]), and may ask for a password and for PCR values. [WriteNVCertificate]
// keeps its certificate beside it. [SharedTPM] lets all of them use one TPM.
//
// # Errors
//
// A refusal is an [*Error] whose [Check] names what failed, or a
// [csr.Errors]; what could not be decided wraps [csr.ErrRetry]. [csr.Decide]
// turns either into the decision for the request object, and [csr.Decision.For] says
// where that is written. No error holds a secret.
//
// # Lower functions
//
// [VerifyCertify] checks one recorded statement against an AK and raw qualifying
// data, for evidence that does not come out of this join, and [VerifyQuote] one
// recorded quote. They say nothing about whose AK it is.
package tpm
