// Package tpmcert verifies the certificates of a TPM's attestation key (AK), issued by a cloud or
// the TPM's owner, and of its endorsement key (EK), issued by the TPM's vendor. The control plane
// configures its trust here.
//
// For AKs, that is a list of [Issuer], each with its roots and a [Profile] that says what its
// certificates look like and how they name the machine:
//
//	kind, err := tpm.TrustAKs(roots, tpmcert.ProfileGoogle()) // one issuer
//	kind, err := tpm.NewKind(tpm.KindConfig{AKIssuers: []tpmcert.Issuer{google, azure}})
//
// For EKs, it is an [EKVerifier]: issuers with an [EKProfile] each, revocation lists ([CRLStore]),
// a list of allowed EKs, a platform's statement ([PlatformEK]) and a list of denied TPMs:
//
//	eks, err := tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: issuers})
//	kind, err := tpm.NewKind(tpm.KindConfig{EKs: eks})
//
// This package contains no roots, and the system's are never used; docs/vendor-roots.md in
// the repository says where vendors publish theirs, and [ParseCertificatesPEM] reads them. A
// profile names the faults of real certificates that it tolerates, and anything that weakens
// the decision has Insecure in its name.
//
// A root admits every machine that its issuer ever certified, including an attacker's own:
// membership is for an attest.Authorizer to decide.
//
// # Cost
//
// Chains of at most five links are built by name and verified from the root down, and no
// signature is checked under a key that only the sender chose. A verifier remembers which
// certificate signatures it has verified. A certificate that a node sends has at most 256 DER
// elements, 32 extended key usages or policies, and names of 1 KiB, which is looked at before anything is made
// of it. All calls for one request share one attest.Budget: signatures, and all other work in
// bytes, at each step of a search.
//
// # Errors
//
// A refusal is a [*refusal.Error] whose [refusal.Check] names what failed; an error about something that
// could not be decided wraps refusal.ErrRetry.
package tpmcert
