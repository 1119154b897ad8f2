// Package statement reads and verifies what a TPM signs: statements of TPM2_Certify about a
// key, and of TPM2_Quote about PCRs.
//
// [VerifyCertify] holds one statement against an attestation key (AK), the qualifying data
// and the key that must have been certified:
//
//	certified, err := statement.VerifyCertify(evidence, statement.CertifyOptions{
//		AK:             statement.AKFromIssuer(certificate.PublicKey, public),
//		QualifyingData: nonce,
//		Key:            request.PublicKey,
//	})
//
// [VerifyQuote] does the same for a quote and the PCR values beside it, and [Quoted.Value]
// gives a value that the quote covers. Package attest/tpm calls both in the join of package
// attest. They are here for evidence that does not come out of that join, such as recorded
// statements. They say nothing about whose AK it is, or whether a machine may join: an [AK]
// states where the trust in it comes from, and the zero value is refused.
//
// # Structures
//
// [ParseAttestation], [ParsePublic] and [ParseSignature] read TPMS_ATTEST, TPMT_PUBLIC and
// TPMT_SIGNATURE (TPM 2.0 Library, Part 2). They take one encoding for one value, with
// nothing after it, and have size limits. [Public.Name] computes a Name, [QualifiedName] a
// Qualified Name.
//
// [ParseTCGAttestCertify] and [ParseQuote] read the DER in which the messages of
// nodeattest carry a statement with what belongs to it, [MarshalTCGAttestCertify] and
// [MarshalQuote] write it. [ParseTCGAttestQuote] reads the form that others give a quote.
//
// # Errors
//
// A refusal is an [*Error] whose [Check] names what failed. No statement that does not
// parse, whatever its bytes, costs a public-key operation.
package statement
