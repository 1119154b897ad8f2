// Package apiserver handles service-account tokens as kube-apiserver 1.36 and 1.37 do, for programs
// that must agree with one: it issues tokens and reviews them.
//
//	issued, err := issuer.Issue(ctx, &apiserver.TokenRequest{Namespace: "shop", Name: "cart"})
//	result, err := validator.Validate(ctx, issued.Token.Reveal())
//
// # Issuing
//
// [Issuer] serves the API server's TokenRequest according to a [Policy]; a [jws.Signer]
// signs. A refusal is a [*StatusError] in Kubernetes' words. The tokens of admission webhooks, an
// alpha feature of 1.37, are not issued.
//
// # Reviewing
//
// [Validator] decides on a bound token as the kube-apiserver of a [Release], with the same message:
// [*ReviewError]. If you need not agree with the API server, use [claims.Validator], which refuses
// more.
//
// # Errors
//
// A check that fails returns an [*Error] with its [Check], from this package or from claims;
// errors.Is finds it, also in a ReviewError. If no decision was possible, the error wraps
// [refusal.ErrRetry]. No error holds a token or a key.
package apiserver

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check that a token, a request or an answer must pass; see
// [refusal.Check].
type Check = refusal.Check

// checkNotOurs: the token is not from the issuers of a [Validator]; another authenticator
// may accept it.
const checkNotOurs Check = "not-ours"

// Error is a check that failed; see [refusal.Error]. It holds no token and no key.
type Error = refusal.Error
