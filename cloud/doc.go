// Package cloud has no code: the packages below it read the documents in which clouds state which
// machine is asking. A program links only the packages that it imports.
//
// Four are kinds of evidence for the join of package attest, each with both sides: the
// node's, which queries its platform, and the control plane's, which verifies. Their
// documents carry the challenge.
//
//   - cloud/gce: identity tokens of Google Compute Engine
//   - cloud/azure: attested documents of Azure
//   - cloud/nitro: attestation documents of AWS' NitroTPMs
//   - cloud/ec2: identity documents of Amazon EC2 with a signed request, about which the control
//     plane asks AWS
//
// One is not, since nothing from the control plane goes into its documents:
//
//   - cloud/awsid: instance identity documents of Amazon EC2
//
// Package cloud/cloudtest provides the clouds for tests. The example in
// cloud/examples/quickstart has machines of all kinds join one control plane;
// docs/kinds-of-evidence.md says what each kind proves and what it does not.
package cloud
