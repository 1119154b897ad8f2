// Package gke verifies certificate requests in the dialect of Google Kubernetes Engine's
// nodes: an AK, a certify statement and an instance's identity in the PEM blocks of
// [csr.GKEBundle], and no challenge.
//
// [NewProvider] makes a [csr.Provider], to be registered with [csr.NewProviders] alongside
// others:
//
//	provider, err := gke.NewProvider(gke.Config{
//		Policy:                   policy,
//		Issuers:                  issuers,   // or AKPublicKey: ask the platform
//		SecondProof:              tokens,    // shows that the machine asks now
//		Authorizer:               members,
//		InsecureAllowNoChallenge: true,
//	})
//
// Nothing in such a request is fresh: the statement has no qualifying data, and is valid for
// as long as its key, for every cluster and requester. [Config.SecondProof] must show by other
// means that this machine is asking now ([TimeLimitedVerifier], [CheckTimeLimited]). What
// remains possible is replay of one machine's request while that proof lasts. New nodes use
// packages attest and attest/tpm.
//
// The decision is that of [csr.Decide]; the facts are a [*Result] in the Details of
// attest.Result and of csr.Attested. A refusal is an [*Error] whose [Check] names what failed.
package gke
