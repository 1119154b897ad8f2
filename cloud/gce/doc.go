// Package gce is a kind of evidence for machines of Google Compute Engine: the identity
// token that a machine's metadata server gives it (Google Cloud, "Verify the identity of
// VMs"), a JSON Web Token that Google signs with RS256.
//
// The control plane:
//
//	keys, err := jws.NewRemoteKeySet(jws.RemoteConfig{Client: http.DefaultClient, JWKSURL: gce.KeysURL})
//	kind, err := gce.NewKind(gce.KindConfig{Keys: keys, Projects: []string{"my-project"}})
//	verifier, err := attest.NewVerifier(attest.VerifierConfig{Kinds: []attest.Kind{kind}, ...})
//
// The node:
//
//	prover, err := gce.NewProver(gce.SourceOptions{})
//	attester, err := attest.NewAttester(prover)
//
// # What it proves
//
// The token's audience is "nodeattest:" followed by the challenge's qualifying data in
// base64url. So the token proves that a process on that machine asked for it after the control
// plane spoke, for this request, cluster, signer and requester. That the machine is this one
// is Google's word (attest.Asserted). The token says nothing about a key: residency is
// unknown. Anything on the machine that reaches the metadata server can ask: keep pods away
// from it, or under GKE's Workload Identity, and give the machine's service account no roles,
// since the same tokens are accepted elsewhere for other audiences.
//
// A machine is gce:<project ID>/<instance ID>, the identity that the AK certificate of its
// virtual TPM also gives (tpmcert.GCEIdentity). The kinds differ, so a machine that is
// recorded by its TPM is not admitted with a token.
//
// # What is not Google's word
//
// Anyone can have Google sign tokens about a service account or a user of their own. What
// makes a token a machine's are the claims google.compute_engine, which Google adds only for a
// machine; a token without them is refused. Only the keys at [KeysURL] count: a service
// account has keys of its own, which sign whatever its owner likes (CVE-2020-16251). Clouds of
// Google's partners (other universes) have another issuer and other keys, and are not supported.
package gce
