// Package statement parses and verifies the statements that a TPM signs: of TPM2_Certify about a
// key, and of TPM2_Quote about PCRs.
//
// [VerifyCertify] checks one statement against an attestation key (AK), the qualifying data
// and the key that must have been certified:
//
//	certified, err := statement.VerifyCertify(evidence, statement.CertifyOptions{
//		AK:             statement.AKFromIssuer(certificate.PublicKey, public),
//		QualifyingData: nonce,
//		Key:            request.PublicKey,
//	})
//
// [VerifyQuote] does the same for a quote and the PCR values that come with it, and
// [Quoted.Value] returns a value that the quote covers. Package attest/tpm calls both in the
// join of package attest. They are exported for evidence from outside that join, such as
// recorded statements. They say nothing about whose AK it is, or whether a machine may join:
// an [AK] states where the trust in it comes from, and the zero value is refused.
//
// # Structures
//
// [ParseAttestation], [ParsePublic] and [ParseSignature] parse TPMS_ATTEST, TPMT_PUBLIC and
// TPMT_SIGNATURE (TPM 2.0 Library, Part 2). They accept one encoding for each value, with
// nothing after it, and have size limits. [Public.Name] computes a Name, [QualifiedName] a
// Qualified Name.
//
// [ParseTCGAttestCertify] and [ParseQuote] parse the DER in which the messages of nodeattest
// carry a statement with what belongs to it; [MarshalTCGAttestCertify] and [MarshalQuote]
// write it. [ParseTCGAttestQuote] parses the form that other software uses for a quote.
//
// # Errors
//
// A refusal is a [*refusal.Error] whose [refusal.Check] names what failed. A statement that does not
// parse never costs a public-key operation, whatever its bytes.
package statement
