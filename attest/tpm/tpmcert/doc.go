// Package tpmcert verifies the certificates of TPMs: those of attestation keys (AK), which
// a cloud or a TPM's owner issues, and those of endorsement keys (EK), which the TPM's
// vendor issues. The control plane says here whom it trusts.
//
// For AKs that is a list of [Issuer], each with its roots and a [Profile] that says what
// its certificates look like and how they name the machine:
//
//	issuer := tpmcert.Issuer{Roots: roots, Profile: tpmcert.ProfileGoogle()}
//	kind, err := tpm.NewKind(tpm.KindConfig{AKIssuers: []tpmcert.Issuer{issuer}})
//
// For EKs it is an [EKVerifier]: issuers with an [EKProfile] each, revocation lists
// ([CRLStore]), a list of allowed EKs, a platform's word ([PlatformEK]) and TPMs that are
// denied:
//
//	eks, err := tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: issuers})
//	kind, err := tpm.NewKind(tpm.KindConfig{EKs: eks})
//
// No roots are in this package, and the system's are never used; docs/vendor-roots.md of
// the repository says where vendors publish theirs, and [ParseCertificatesPEM] reads them.
// A profile names the faults of real certificates that it tolerates, and whatever makes
// the judgement weaker has Insecure in its name.
//
// A root admits every machine that its issuer ever certified, an attacker's own among
// them: membership is for an attest.Authorizer to decide.
//
// # Cost
//
// Chains are put together by names and verified from the root down, at most five links,
// and no signature is checked under a key that only the sender chose. A verifier remembers
// which signatures of certificates it has verified. All calls for one request share one
// attest.Budget of public-key operations and fetches.
//
// # Errors
//
// A refusal is an [*Error] whose [Check] names what failed; what could not be decided
// wraps csr.ErrRetry.
package tpmcert
