// Package claimstest provides a cluster that issues service-account tokens, for tests of services
// that take them with package claims: a service-account issuer with its key set, objects that
// tokens are bound to, attested nodes with their certificates, and a clock.
//
//	cluster := claimstest.New(t, claimstest.Options{})
//	cluster.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart"})
//	token, err := cluster.Token(ctx, "shop", "cart", claimstest.TokenOptions{Pod: "cart-0"})
//	validator, err := claims.NewValidator(cluster.ValidatorConfig())
//
// Tokens are issued by the rules of kube-apiserver 1.36 and 1.37 (package apiserver), and signed with
// a key in software or of the caller's, for example one in the simulated TPM of package tpmsim
// ([Options]). Each input that a service must refuse takes one line:
//
//   - a token of an object that is gone: [Cluster.Delete]; or was made again: [Cluster.Put];
//   - a token that has ended: [Cluster.Advance];
//   - a token for another audience, one that is bound to nothing, or one with changed claims:
//     [TokenOptions];
//   - a token of another key for the same issuer: a second cluster; of another issuer: one with
//     [Options.Issuer]; of a key that was withdrawn: [Cluster.RotateKey];
//   - a token from another machine: the [Node.Client] of a second [Cluster.AddNode];
//   - answers that fail, never come or are old: [Cluster.Break].
//
// A service that has the API server review tokens has [Cluster.ReviewConfig] in place of
// ValidatorConfig.
//
// Nothing listens on the network; package jws/jwstest serves the keys over HTTPS. A node's certificate is
// real, and signed by a CA that stands for that of attested nodes: no TPM was asked. A machine that has joined by package attesttest can be
// added with its certificate and record.
package claimstest
