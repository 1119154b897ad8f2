// Package boltregistry is a membership.Registry in one file on a local disk, using bbolt. It
// is meant for a control plane of one process, or of several that take turns. Each call is one
// transaction: once it has returned, its change survives kill -9 and loss of power, and no reader sees
// half a change. A call reads and writes pages in proportion to the logarithm of the number of
// records.
//
// bbolt has no checksums: after a corrupt byte, records can silently disappear. So opening the file reads
// all of it, and refuses a damaged one.
//
// The file is created once, by a person ([Create]), and opened at every start of the control
// plane ([Open]): an empty registry admits any machine under any name.
//
// It is separate from package membership so that programs that keep their records elsewhere do
// not link bbolt.
package boltregistry
