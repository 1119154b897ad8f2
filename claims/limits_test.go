package claims

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestNodeCheckLimits: all facts may be asked for, and none that is not known.
func TestNodeCheckLimits(t *testing.T) {
	w := newWorld(t)
	r := w.result(t)
	c := w.nodeCheck()
	c.Require = endOfFacts - 1
	if _, err := c.Check(t.Context(), w.objects, r, attested(), w.now); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(c *NodeCheck, objects *Objects){
		"an unknown fact":    func(c *NodeCheck, _ *Objects) { c.Require = endOfFacts },
		"no Objects":         func(_ *NodeCheck, objects *Objects) { *objects = nil },
		"no fresh Objects":   func(_ *NodeCheck, objects *Objects) { *objects = FreshObjects{MaxStaleness: time.Second} },
		"Objects may be old": func(_ *NodeCheck, objects *Objects) { *objects = staleObjects{w.objects} },
		"negative staleness": func(_ *NodeCheck, objects *Objects) { *objects = FreshObjects{From: w.objects, MaxStaleness: -1} },
		"no FindMachine":     func(c *NodeCheck, _ *Objects) { c.FindMachine = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, objects := w.nodeCheck(), Objects(w.objects)
			change(&c, &objects)
			_, err := c.Check(t.Context(), objects, r, attested(), w.now)
			wantCheck(t, err, refusal.CheckConfig)
		})
	}
}

func TestBearerLimits(t *testing.T) {
	most := strings.Repeat("a", jws.MaxTokenSize)
	if got, err := bearer([]string{"Bearer " + most}); err != nil || got != most {
		t.Errorf("the longest token: %d bytes, %v", len(got), err)
	}
	for _, value := range []string{"Bearer ", "Bearer", "", "Bearer " + most + "a", "Basic x"} {
		_, err := bearer([]string{value})
		wantCheck(t, err, checkBearer)
	}
}

// TestNodeCheckAnswers: a registry and a getter that answer and fail at once, or do
// neither, decide nothing; nor does a Node without UID vouch for a token without one.
func TestNodeCheckAnswers(t *testing.T) {
	w := newWorld(t)
	r := w.result(t)
	for name, machines := range map[string]func(context.Context, string) (*RegisteredMachine, error){
		"nothing":             func(context.Context, string) (*RegisteredMachine, error) { return nil, nil },
		"an error":            func(context.Context, string) (*RegisteredMachine, error) { return nil, errDead },
		"an error and a good": func(context.Context, string) (*RegisteredMachine, error) { return w.machine, errDead },
	} {
		t.Run("machines: "+name, func(t *testing.T) {
			c := w.nodeCheck()
			c.FindMachine = machines
			facts, err := c.Check(t.Context(), w.objects, r, attested(), w.now)
			if wantCheck(t, err, refusal.ErrRetry); facts != nil || errors.Is(err, alive.ErrNoAnswer) != (name == "nothing") {
				t.Errorf("facts %v of no answer, %v", facts, err)
			}
		})
	}
	for name, answer := range map[string]struct {
		node *Object
		err  error
	}{"nothing": {}, "an error": {nil, errDead}, "an error and a good": {w.objects.node, errDead}} {
		t.Run("objects: "+name, func(t *testing.T) {
			facts, err := w.nodeCheck().Check(t.Context(), oneNode{w.objects, answer.node, answer.err}, r, attested(), w.now)
			if wantCheck(t, err, refusal.ErrRetry); facts != nil {
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
		wantCheck(t, err, checkNodeClaimUID)
	})
}

// oneNode gives one answer for every Node.
type oneNode struct {
	LiveObjects
	node *Object
	err  error
}

func (o oneNode) Get(context.Context, string, string, string) (*Object, error) { return o.node, o.err }
