// Package controller decides the certificate requests of nodes on a live cluster: a reconciler
// that a program starts in its own manager, with its own kinds of evidence and inventory.
//
//	reconciler, err := controller.New(controller.Config{Providers: controller.Of(verifier)})
//	...
//	err = reconciler.SetupWithManager(manager)
//
// A hello is denied with its challenge, an answer is approved or denied, in one write each.
// The decisions are made by the Providers and csr.Decide; this package reads, writes, waits
// and counts. It approves but never signs: by default Kubernetes' own signer does that.
//
// Requests to other signers are neither read nor kept in memory. A decision is written over
// exactly the object that it is about. A request that could not be decided is looked at again,
// at growing intervals.
package controller
