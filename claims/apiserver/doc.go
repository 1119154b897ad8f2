// Package apiserver does with service-account tokens what kube-apiserver 1.36 does, for
// those who must agree with it: it issues them, reviews them, and serves the documents with
// which others verify them.
//
//	issued, err := issuer.Issue(ctx, &apiserver.TokenRequest{Namespace: "shop", Name: "cart"})
//	result, err := validator.Validate(ctx, issued.Token.Reveal())
//
// # Issuing
//
// [Issuer] serves the API server's TokenRequest as a [Policy] says; a [jws.Signer] signs,
// such as the client of an external signer. Refusals are [*StatusError] in Kubernetes' words. [OIDCHandler]
// serves the discovery document and the key set.
//
// # Reviewing
//
// [Validator] decides what kube-apiserver decides, with the same message: [*ReviewError].
// It takes legacy tokens, which a Secret holds, where it is given [LegacyObjects]. Everyone
// who need not agree with the API server uses [claims.Validator], which refuses more.
//
// # Errors
//
// Refusals of one check are an [*Error] with its [Check], of this package or of claims;
// errors.Is finds it, also in a ReviewError. What could not be decided holds [ErrRetry].
// No error holds a token or a key.
package apiserver

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check that a token, a request or an answer must pass; see
// [refusal.Check].
type Check = refusal.Check

// CheckNotOurs: no token of the issuers that a [Validator] is for; another authenticator
// may know it.
const CheckNotOurs Check = "not-ours"

// ErrRetry says that a question could not be answered now, neither yes nor no: an
// object getter, a key set or a signer failed. The same call may succeed later.
const ErrRetry = refusal.ErrRetry

// Error is a check that failed; see [refusal.Error]. It holds no token and no key.
type Error = refusal.Error
