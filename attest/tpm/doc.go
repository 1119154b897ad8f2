// Package tpm provides a TPM's evidence in the join of package attest: that a machine with a
// certified attestation key (AK) asks for the certificate of one TLS key, now.
//
// The control plane makes a [Kind] and passes it to attest.NewVerifier; the node makes a
// [Prover] and passes it to attest.NewAttester:
//
//	kind, err := TrustAKs(roots, tpmcert.ProfileTCG()) // or TrustEKs, or NewKind for the rest
//	prover, err := NewProver(device, GCERSA(), ProverOptions{})
//
// The answer is a TPM2_Certify statement: the AK signs the Name of the TLS key together with
// the challenge's qualifying data.
//
// # Trust
//
// On the road of the AK certificate (attest.RoadAK), that certificate chains to roots that the
// control plane chose, under a profile of this issuer's certificates. That the AK is restricted and
// lives in a TPM is then the issuer's word.
//
// On the road of the EK (attest.RoadEK), the TPM's endorsement key is trusted, by its
// certificate or by a list. The challenge's secret is in a credential that opens only in the
// TPM of that EK, and only for an AK with exactly the public area that the node sent: so the
// AK's attributes are proven.
//
// # A CA of one's own
//
// Machines whose AKs have no certificate, for example a fleet of bare-metal machines, enrol:
// they join the AK's CA as they would a cluster, on the road of the EK. The CA's program has
// a Verifier whose only cluster ID is that of the CA's certificate (attest.ClusterID), so
// that no answer to the CA is valid for a cluster, or vice versa, and an Authorizer that says
// which machines are the operator's. The CA certifies the AK, not the request's key:
//
//	result, err := verifier.Verify(ctx, answer)
//	template, err := EnrolledAK(result, ca)
//	certified, err := tpmcert.CreateAKCertificate(ctx, template, ca, caKey)
//
// The node keeps the certificate with the AK (tpmkey.WriteNVCertificate, or
// ProverOptions.Certificates) and from then on takes the road of the AK, to every control
// plane that trusts the CA under tpmcert.ProfileTCG.
//
// # Measurements
//
// An answer can carry a TPM2_Quote over the same challenge by the same AK
// (ProverOptions.Quote) and the firmware's event log. The kind's [QuotePolicy] decides about
// it: [PCRPolicy] by exact values, package attest/tpm/eventlog by the events of the replayed
// log, including Secure Boot. A PCR that the quote does not cover is an error, never a default.
//
// # Keys
//
// The TLS key may be in memory or in the TPM: package attest/tpm/tpmkey creates and keeps
// keys in the TPM, lets several users share one TPM, and keeps certificates in NV.
//
// [DetailsOf] returns the facts of an attest.Result that only a TPM has.
package tpm
