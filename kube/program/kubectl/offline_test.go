package kubectl

import (
	"errors"
	"testing"
)

// TestOfflineNodes: whether a name without a record has a Node is unknown where no Nodes were given.
func TestOfflineNodes(t *testing.T) {
	if _, err := new(offline).nodeExists(t.Context(), "node-1"); !errors.Is(err, errNoNodes) {
		t.Errorf("without Nodes: got %v", err)
	}
	given := &offline{names: map[string]bool{"node-1": true}}
	for name, want := range map[string]bool{"node-1": true, "node-2": false} {
		if got, err := given.nodeExists(t.Context(), name); err != nil || got != want {
			t.Errorf("%s: got %t, %v", name, got, err)
		}
	}
}
