// Package clouds compares the verifiers of cloud documents with other implementations, in
// what they decide and in what they cost.
package clouds
