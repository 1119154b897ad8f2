// Package nodeattest is the root of an SDK with which a machine proves which machine it is
// before a Kubernetes control plane gives it a node's certificate. The proof comes from the
// machine's TPM 2.0, travels in the certificate request itself, and is checked by a library
// call on the control plane. This package has no code; it is a map of the others.
//
// # Packages
//
// Package oid holds every object identifier that the SDK reads or writes, each
// with its name in the document that defines it, and the codecs of the extensions
// that carry them: the node's provider ID, and the instance identity that Google
// puts into the certificates of its virtual TPMs.
//
// Package csr is the node's request: the bundle of PEM blocks in the spec.request field of a
// CertificateSigningRequest, a builder for the node, and for the control plane a strict
// parser, the policy about the requests of nodes, the decision (approve, deny or try
// again) and the issuing of the certificate. It knows nothing about TPMs.
//
// Package attest is the join. On the node an Attester makes a hello and answers a challenge.
// On the control plane a Verifier makes the challenge, verifies the answer and says which
// machine it came from. Kinds of evidence read and verify the proof itself.
//
// Package attest/tpm is the TPM's kind of evidence: the node's key is certified by an
// attestation key whose certificate, or whose TPM's certificate, is trusted. Beneath it,
// attest/tpm/statement verifies one statement or quote of a TPM by itself, attest/tpm/tpmcert
// the certificates of TPMs, attest/tpm/tpmkey makes and keeps keys in a TPM, and
// attest/tpm/eventlog judges the software that a machine booted: it replays the firmware's event log
// against the quote of an answer and reads the state of Secure Boot.
//
// Package attest/tpm/goattestation, a module of its own, is for machines whose attestation keys
// were made by go-attestation.
//
// Package attest/document is for authors of other kinds: a platform signs a document over
// the challenge, as clouds do.
//
// Package attest/attesttest is for tests of programs that use attest: a node with a
// TPM and a provider ID, its requests and evidence, and a control plane with a CA,
// each made in one line.
//
// Package attest/membership says which machine may be which node: a static list, trust on
// first use over a registry of machines and names, and a combination that admits what two
// others both admit. The registry is in memory or in one file on disk. Its rules are pure functions,
// for registries over other stores.
//
// Package tpmsim is a TPM for tests: the reference simulator in the process, or swtpm over a
// socket, with an endorsement CA, provisioned certificates and templates, and a transport that
// fails on request. It is the only package that needs cgo to run.
//
// Package jws signs and verifies JSON Web Signatures: the detached signatures of cluster
// discovery, and compact tokens. Keys are bound to one algorithm each and come from key sets
// in memory or fetched; signers can be a TPM or a cloud's key service.
//
// Package jws/jwstest is for tests of programs that use it: signers, forged tokens, a server of key
// sets that fails, and checks of a signer or key set of one's own.
//
// Package bootstraptoken is how a node first learns about a cluster: bootstrap tokens and
// their Secrets, the signed cluster-info, and discovery of the cluster with a token and pinned
// CAs, from a file or over HTTPS.
//
// Package bootstraptoken/bootstraptokentest is for tests of programs that use it: a
// cluster's discovery endpoint in two lines.
//
// Package claims is for bound service-account tokens: it parses them, validates them more
// strictly than the Kubernetes API server does, and compares them with the machine that
// attested.
//
// Package claims/apiserver is the API server's side: it issues tokens and reviews
// them.
//
// Package claims/extsigner is the core of an external signer of tokens.
//
// Package claims/audit finds in kube-apiserver's audit log which node asked for a token.
//
// Package claims/claimstest is for tests of services that take tokens: a cluster that issues them,
// with attested nodes, objects that end, and answers that fail.
//
// Package refusal defines refusals for all of them: a named check, the value found and
// the value wanted, and the difference between "no" and "could not decide".
//
// Package secret has the one type in which they hold secrets. Package recovered turns a panic in a
// caller's code, such as a kind of evidence, into an error.
//
// Module kube, alongside this one, has the programs for a live cluster and its nodes.
//
// # Two roads of trust
//
// Two roads lead from a TPM to a decision. Both exchange the same three messages (hello,
// challenge, answer) and end in the same result, as does every other kind of evidence.
//
// Road A trusts the certificate of an attestation key (AK), as issued by clouds with virtual
// TPMs. The AK signs the statement that the node's key is the one in the request, over data
// that is bound to the challenge. That the AK lives in a TPM and signs only what the TPM made
// is the word of the AK's issuer, and the result says so.
//
// Road B trusts the certificate of a TPM's endorsement key (EK), as issued by the vendors of
// hardware TPMs. The control plane encrypts to the EK a secret that opens only for an AK with
// the stated attributes in the same TPM, so those attributes are proven rather than asserted.
//
// A chain to a trusted root is not permission in itself: it admits every machine with such a
// certificate. Which machine may be which node is decided by a callback that the caller must
// provide.
package nodeattest
