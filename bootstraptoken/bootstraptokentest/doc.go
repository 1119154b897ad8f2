// Package bootstraptokentest provides a cluster that can be discovered, for tests of code that
// uses package bootstraptoken: an API server over real TLS that lets anonymous clients read the
// cluster-info ConfigMap, a bootstrap token, and a signer that signs for it.
//
//	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
//	found, err := bootstraptoken.Discover(ctx, cluster.DiscoverConfig())
//
// The CA's key and the server's can live in a TPM, for example the simulated one of package
// tpmsim ([Options]). [Cluster.Impostor] starts servers that pretend to be the cluster,
// [Cluster.Intercept] makes the server slow or broken, [Cluster.AddCA] and the methods next to
// it rotate the CA, and [Cluster.Requests] returns what clients sent.
package bootstraptokentest
