package registry

import (
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/internal/recent"
)

// recentSize is the size of a recentNodes (recent.New).
const recentSize = 128

// recentNodes keeps the nodes that were read or written last, by version, for a write over one of
// them that follows soon. If the node has changed since, the write fails.
type recentNodes struct {
	nodes *recent.Map[string, *node]
}

func newRecentNodes() recentNodes { return recentNodes{recent.New[string, *node](recentSize)} }

// add remembers a node. It never forgets that a version is complete.
func (r recentNodes) add(n *node) {
	if held := r.of(n.record); held == nil || !held.complete {
		r.nodes.Put(n.record.Version, n)
	}
}

// of returns the node of a record, or nil.
func (r recentNodes) of(record *membership.Record) *node {
	if record == nil {
		return nil
	}
	if n, ok := r.nodes.Get(record.Version); ok && n.record.NodeName == record.NodeName {
		return n
	}
	return nil
}
