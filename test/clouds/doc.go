// Package clouds compares the verifiers of cloud documents with other implementations, in
// what they decide, what they read and what they cost. Those of Azure, NitroTPM and EC2 are in
// folders of their own, and read the vectors of module vectors.
package clouds
