// Package clouds compares the verifiers of cloud documents with other implementations, in
// their decisions, readings and costs. The tests of Azure, NitroTPM and EC2 are in
// folders of their own, and read the vectors of module vectors.
package clouds
