// Package document is the join by documents: evidence of machines that have no TPM to ask,
// and whose platform signs a document about them over a value that they give, as the
// identity tokens and attested documents of clouds are.
//
// It has all of such a kind but the platform: the messages, the control plane's side
// ([NewKind]) and the node's ([NewProver]). An author of a kind writes two small types: a
// [Platform], which reads and verifies a document, and a [Source], which asks the
// machine's platform for one.
//
//	kind, err := document.NewKind(document.KindConfig{Provider: "example", Identities: []string{"example"}, ValueSize: 32, Platform: platform})
//	verifier, err := attest.NewVerifier(attest.VerifierConfig{Kinds: []attest.Kind{kind}, ...})
//
//	prover, err := document.NewProver("example", source)
//	attester, err := attest.NewAttester(prover)
//
// The value is qualifying data of the challenge, for the label "document": the document
// must cover it, or its first 16 bytes or more where the platform takes no more.
//
// A document proves that somebody on that machine asked for it: perhaps a pod that reaches
// the metadata address, and nothing about a key or about root. So the key's residence is
// unknown, [attest.VerifierConfig].RequireTPMResident refuses, and membership is asked at
// the answer alone. Where the platform's document takes no value of the caller's it is no
// kind of evidence: whoever reads one request could file it again.
package document
