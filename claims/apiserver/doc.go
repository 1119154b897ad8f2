// Package apiserver handles service-account tokens as kube-apiserver 1.36 and 1.37 do, for programs
// that must agree with one: it issues tokens and reviews them.
//
//	issued, err := issuer.Issue(ctx, &apiserver.TokenRequest{Namespace: "shop", Name: "cart"})
//	result, err := validator.Validate(ctx, issued.Token.Reveal())
//
// # Issuing
//
// [Issuer] serves the API server's TokenRequest within the limits of [IssuerConfig]; a [jws.Signer]
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
// A check that fails returns a [*refusal.Error] with its [refusal.Check], from this package or
// from claims; errors.Is finds it, also in a ReviewError. If no decision was possible, the error
// wraps [refusal.ErrRetry]. No error holds a token or a key.
package apiserver

import "github.com/nodeattest/nodeattest/refusal"

// checkNotOurs: the token is not from the issuers of a [Validator]; another authenticator
// may accept it.
const checkNotOurs refusal.Check = "not-ours"
