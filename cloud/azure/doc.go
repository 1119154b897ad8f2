// Package azure verifies the attested documents of Azure's Instance Metadata Service, and is a
// kind of evidence for package attest based on them.
//
// For anyone on a machine who asks, the service signs which machine and subscription it is,
// together with a nonce. The document is a PKCS#7 (RFC 5652) over JSON, under a TLS
// certificate for the name metadata.azure.com or one below it.
//
//	verifier, err := azure.NewVerifier(azure.VerifierConfig{Roots: roots, Intermediates: intermediates})
//	kind, err := azure.NewKind(azure.KindConfig{Verifier: verifier, Subscriptions: subscriptions})
//	// attest.VerifierConfig{Kinds: []attest.Kind{kind}, ...}
//
//	prover, err := azure.NewProver(azure.SourceOptions{}) // on the node
//	attester, err := attest.NewAttester(prover)
//
// The nonce is "nodeattest" and the first 16 bytes of the challenge's qualifying data in base
// 62: its 32 characters are the most that the service accepts. The label keeps documents that agents
// of other products request apart; see docs/threat-model.md for agents that request any text. A
// machine is "azure:<subscription>/<vmId>" in lower case ([Identity]). The UUID that the machine's
// firmware shows is not always the vmId: some show it with other bytes first. Virtual machines have
// documents; container instances and functions do not.
//
// Documents come in one shape, and only that one is read: DER, one certificate, one signer
// whose certificate it is, no attributes. The chain that is verified is that of the very
// certificate whose key signed.
//
// What a document does not prove: that root asked, or anything about a key. Everything that
// can reach 169.254.169.254 on the machine can get documents. The signers' certificates come
// from web CAs, so trust is in a name ([VerifierConfig].Roots).
package azure
