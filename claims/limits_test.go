package claims

import (
	"net/http"
	"strings"
	"testing"

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
		"no fresh Objects":   func(_ *NodeCheck, objects *Objects) { *objects = FreshObjects{} },
		"Objects may be old": func(_ *NodeCheck, objects *Objects) { *objects = staleObjects{w.objects} },
		"negative staleness": func(_ *NodeCheck, objects *Objects) { *objects = FreshObjects{From: w.objects, MaxStaleness: -1} },
		"no Machines":        func(c *NodeCheck, _ *Objects) { c.Machines = nil },
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
	if got, err := bearer(http.Header{"Authorization": {"Bearer " + most}}); err != nil || got != most {
		t.Errorf("the longest token: %d bytes, %v", len(got), err)
	}
	for _, value := range []string{"Bearer ", "Bearer", "", "Bearer " + most + "a", "Basic x"} {
		_, err := bearer(http.Header{"Authorization": {value}})
		wantCheck(t, err, CheckBearer)
	}
}
