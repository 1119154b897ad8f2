// Package document implements joins by documents: evidence for machines without a TPM, whose platform
// signs a document about them over a value of their choice, such as a cloud's identity token or
// attested document.
//
// It has everything that such a kind needs except the platform: the messages, the control
// plane's side ([NewKind]) and the node's ([NewProver]). The author of a kind writes two small
// types: a [Platform], which reads and verifies a document, and a [Source], which asks the
// machine's platform for one.
//
//	kind, err := document.NewKind(document.KindConfig{Provider: "example", Identities: []attest.Grammar{{Kind: "example"}}, ValueSize: 32, Platform: platform})
//	verifier, err := attest.NewVerifier(attest.VerifierConfig{Kinds: []attest.Kind{kind}, ...})
//
//	prover, err := document.NewProver("example", 1, source)
//	attester, err := attest.NewAttester(prover)
//
// The value is the challenge's qualifying data for the label "document": the document must
// cover it, or at least its first 16 bytes if the platform takes no more.
//
// A document proves only that a process on that machine requested it, perhaps a pod that reaches the
// metadata address, and nothing about a key or about root. So the key's residence is unknown,
// [attest.VerifierConfig].RequireTPMResident refuses it, and membership is decided only at the answer.
// A platform whose document takes no value from the caller is not a kind of evidence: anyone who reads
// one request could file it again.
package document
