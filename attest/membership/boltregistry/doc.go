// Package boltregistry is a membership.Registry in one file on a local disk, over bbolt:
// for a control plane of one process, or of several that take turns. Each call is one
// transaction: what was acknowledged survives kill -9 and the loss of power, and no
// reader sees half of a change. A call reads and writes pages in proportion to the
// logarithm of the number of records, and opening the file does not read it whole.
//
// The file is made once, by a person ([Create]), and opened by every start of the control
// plane ([Open]): a registry that starts empty trusts everybody once more.
//
// It stands apart from package membership so that nobody links bbolt who keeps records
// elsewhere.
package boltregistry
