// Package controller decides about the certificate requests of nodes on a live cluster: a
// reconciler that a program starts in its own manager, with its kinds of evidence and its
// inventory.
//
//	reconciler, err := controller.New(controller.Config{Providers: providers, Challenges: []string{"tpm"}})
//	...
//	err = reconciler.SetupWithManager(manager)
//
// A hello is denied with its challenge, an answer approved or denied, in one write each.
// What is decided is csr.Providers' to say, and csr.Decide's; this package reads, writes,
// waits and counts. It approves and never signs: by default Kubernetes' own signer does.
//
// Requests under other signers are neither read nor kept in memory. A decision is written
// over the very object that it is about. What could not be decided is looked at again,
// later and later.
package controller
