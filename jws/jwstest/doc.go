// Package jwstest helps to test code that uses package jws: signers, tokens that must be refused,
// a server of key sets that fails in the ways that servers do, and checks of a jws.Signer or
// jws.KeySet of one's own.
//
//	signer := jwstest.NewSigner(t, nil, jws.SignerOptions{})
//	server := jwstest.NewServer(t, signer.Key())
//	keys, err := jws.NewRemoteKeySet(server.RemoteConfig())
//
// [NewSigner] takes any private key, such as one in the simulated TPM of package tpmsim (see the
// example), or makes one in memory for any algorithm. [Signer.Forge] signs any header, and
// [Signer.Forgeries] has one token for each attack on a verifier. [Server.SetFault] makes the
// server hang, fail or serve other keys, and [Server.SetKeys] rotates them.
//
// [TestSigner] and [TestKeySet] check an implementation against what jws.Signer and jws.KeySet
// document, as testing/fstest.TestFS does for file systems. Package jws's own implementations pass.
package jwstest
