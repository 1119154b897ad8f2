// Package nitro verifies the attestation documents of NitroTPMs, the TPMs of Amazon EC2
// instances, and is a kind of evidence for package attest based on them.
//
// For root on an instance, the hypervisor signs which instance it is and what its
// PCRs are, together with a nonce and user data. The document is a COSE_Sign1 (RFC 9052) with
// ES384 over CBOR (RFC 8949), under certificates that it includes and AWS' root.
//
//	verifier, err := nitro.NewVerifier(nitro.VerifierConfig{Roots: roots})
//	kind, err := nitro.NewKind(nitro.KindConfig{Verifier: verifier, GoodPCRs: values})
//	// attest.VerifierConfig{Kinds: []attest.Kind{kind}, ...}
//
//	prover, err := nitro.NewProver(nitro.SourceConfig{Ask: nitro.Tool("")}) // on the node
//	attester, err := attest.NewAttester(prover)
//
// The nonce is all of the challenge's qualifying data, and the user data is
// "nodeattest/nitro/v1". A machine is "aws:<partition>/<region>/<instance ID>" ([Identity]).
// No document says which account the instance is in, so every customer of AWS has good ones:
// membership must be a list.
//
// Enclaves have documents of the same form under the same root, which every customer can get
// over any nonce. They are refused: the PCRs must be a NitroTPM's, and module_id and the
// certificate's name must say so.
//
// Parsing is strict, but does not require deterministic CBOR, which real documents are not:
// the outer map may have no length, absent values are null, and keys have no order. Everything
// else has one form.
package nitro
