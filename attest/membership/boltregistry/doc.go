// Package boltregistry is a membership.Registry in one file on a local disk, using bbolt. It
// is meant for a control plane of one process, or of several that take turns. Each call is one
// transaction: what was acknowledged survives kill -9 and loss of power, and no reader sees
// half a change. A call reads and writes pages in proportion to the logarithm of the number of
// records.
//
// bbolt has no checksums, so after a damaged byte, records can silently disappear.
// Opening the file therefore reads all of it, and refuses one that does not hang together.
//
// The file is created once, by a person ([Create]), and opened at every start of the control
// plane ([Open]): a registry that starts empty trusts everybody once more.
//
// It is separate from package membership so that programs that keep their records elsewhere do
// not link bbolt.
package boltregistry
