// Package cloud is the root of a module whose packages read the documents in which clouds
// say which machine asks: a module of its own, so that its libraries stay here.
//
// Three are kinds of evidence for the join of package attest, each with both sides: the
// node's, which asks its platform, and the control plane's, which verifies offline. Their
// documents carry the challenge.
//
//   - cloud/gce: identity tokens of Google Compute Engine
//   - cloud/azure: attested documents of Azure
//   - cloud/nitro: attestation documents of AWS' NitroTPMs
//
// One is none, since nothing of the control plane's goes into its documents:
//
//   - cloud/awsid: instance identity documents of Amazon EC2
//
// Package cloud/cloudtest has the clouds for tests. The example in cloud/examples/quickstart
// has machines of all kinds join one control plane; docs/kinds-of-evidence.md says what each
// kind proves and what it does not.
package cloud
