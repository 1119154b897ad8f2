// Package ec2 is a kind of evidence for package attest for Amazon EC2 instances that have no
// NitroTPM. It has two parts: the instance identity document (package awsid), which AWS signed
// once about the instance and which takes no value from a caller, and a second proof that is good
// for 15 minutes: a request GetCallerIdentity to AWS' Security Token Service (STS), signed with
// the instance's own credentials, one of whose signed headers is the challenge's value.
//
//	kind, err := ec2.NewKind(ec2.KindConfig{Certificates: certificates, Roles: []string{"arn:aws:iam::123456789012:role/node"}})
//	// attest.VerifierConfig{Kinds: []attest.Kind{kind}, ...}
//
//	prover, err := ec2.NewProver(ec2.SourceOptions{}) // on the node
//	attester, err := attest.NewAttester(prover)
//
// The control plane sends the request to STS and reads in its answer whose credentials signed
// it. EC2 names the session of an instance's role by the instance's ID, which must be the
// document's. A machine is "aws:<partition>/<region>/<instance ID>", as for package nitro.
//
// # What it proves
//
// That a process had credentials of one of the listed roles in a session with the name of that
// instance. It is the weakest kind: a principal that may assume one of the roles chooses the session's
// name, and with it the machine, and so does anything on a machine that reads its credentials at
// the metadata address. So a role that is listed may be assumed by ec2.amazonaws.com and no one
// else; membership is a list, and trust on first use does not accept the kind.
//
// # Which requests are sent
//
// The request is never sent as it came. Its host is that of the document's region, from a table
// in this package; method, path and query are fixed; and from the node's text only the values
// are taken that belong to a signature, each of a form of its own. What remains is one text for
// one request, and anything else is refused before AWS is asked. The document is verified
// first, so a stranger without an instance in a listed account causes no call.
package ec2
