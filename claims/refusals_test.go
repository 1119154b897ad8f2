package claims

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
)

// TestNodeCheckAnswers: a registry and a getter that answer and fail at once, or do
// neither, decide nothing; nor does a Node without UID vouch for a token without one.
func TestNodeCheckAnswers(t *testing.T) {
	w := newWorld(t)
	r := w.result(t)
	for name, machines := range map[string]MachinesFunc{
		"nothing":             func(context.Context, string) (*RegisteredMachine, error) { return nil, nil },
		"an error":            func(context.Context, string) (*RegisteredMachine, error) { return nil, errDead },
		"an error and a good": func(context.Context, string) (*RegisteredMachine, error) { return w.machine, errDead },
	} {
		t.Run("machines: "+name, func(t *testing.T) {
			c := w.nodeCheck()
			c.Machines = machines
			facts, err := c.Check(t.Context(), w.objects, r, attested(), w.now)
			if wantCheck(t, err, ErrRetry); facts != nil || errors.Is(err, alive.ErrNoAnswer) != (name == "nothing") {
				t.Errorf("facts %v of no answer, %v", facts, err)
			}
		})
	}
	for name, answer := range map[string]struct {
		node *Node
		err  error
	}{"nothing": {}, "an error": {nil, errDead}, "an error and a good": {w.objects.node, errDead}} {
		t.Run("objects: "+name, func(t *testing.T) {
			facts, err := w.nodeCheck().Check(t.Context(), oneNode{w.objects, answer.node, answer.err}, r, attested(), w.now)
			if wantCheck(t, err, ErrRetry); facts != nil {
				t.Error("facts of no answer")
			}
		})
	}
	t.Run("no UID anywhere", func(t *testing.T) {
		w := newWorld(t)
		w.claims.Kubernetes.Node.UID, w.objects.node.UID = "", ""
		n := attested()
		n.UID = ""
		_, err := w.checkNodeOf(t, n)
		wantCheck(t, err, CheckNodeClaimUID)
	})
}

// oneNode gives one answer for every Node.
type oneNode struct {
	Objects
	node *Node
	err  error
}

func (o oneNode) Node(context.Context, string) (*Node, error) { return o.node, o.err }
