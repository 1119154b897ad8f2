package claims

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// attested is everything there is to know of the machine of the world's node.
func attested() *AttestedNode {
	return &AttestedNode{Name: "node-a", UID: "node-uid", ProviderID: "gce://p/z/a", Machine: "ek:sha256:aa", MachineUID: "machine-uid"}
}

// checkNodeOf compares the world's token with the machine, after a validation that looks at
// no node.
func (w *world) checkNodeOf(t testing.TB, node *AttestedNode) (*NodeFacts, error) {
	t.Helper()
	r := w.result(t)
	return w.nodeCheck().Check(t.Context(), w.objects, r, node, w.now)
}

func TestNodeCheckAccepts(t *testing.T) {
	const always = FactNodeName | FactNodeUID
	for _, tt := range []struct {
		name   string
		change func(w *world, n *AttestedNode)
		want   Facts
	}{
		{"everything is known", func(*world, *AttestedNode) {}, endOfFacts - 1},
		{"no UID", func(_ *world, n *AttestedNode) { n.UID = "" }, endOfFacts - 1 - FactAttestedUID},
		{"certificate with extension alone", func(_ *world, n *AttestedNode) { n.UID, n.Machine, n.MachineUID = "", "", "" }, always | FactCertificateProviderID | FactRegisteredProviderID},
		{"machine alone", func(w *world, n *AttestedNode) {
			n.ProviderID, n.UID, n.MachineUID, w.machine.ProviderID = "", "", "", ""
		}, always | FactRegisteredMachine},
		{"machine's object alone", func(w *world, n *AttestedNode) { n.ProviderID, n.UID, n.Machine, w.machine.ProviderID = "", "", "", "" },
			always | FactRegisteredMachineUID},
		{"registry without provider ID", func(w *world, _ *AttestedNode) { w.machine.ProviderID = "" }, endOfFacts - 1 - FactRegisteredProviderID},
		{"registry without identity", func(w *world, _ *AttestedNode) { w.machine.Identity = "" }, endOfFacts - 1 - FactRegisteredMachine},
		{"registry without UID", func(w *world, _ *AttestedNode) { w.machine.UID = "" }, endOfFacts - 1 - FactRegisteredMachineUID},
		{"attested without the machine's object", func(_ *world, n *AttestedNode) { n.MachineUID = "" }, endOfFacts - 1 - FactRegisteredMachineUID},
		{"bare metal", func(w *world, n *AttestedNode) {
			n.ProviderID, w.machine.ProviderID, w.objects.node.ProviderID = "", "", ""
		},
			always | FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID},
		{"only the Node knows a provider ID", func(w *world, n *AttestedNode) { n.ProviderID, w.machine.ProviderID = "", "" },
			always | FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID},
		{"Node to be deleted later", func(w *world, _ *AttestedNode) { w.objects.node.Deleted = w.ago(-time.Second) }, endOfFacts - 1},
		{"bound to the node alone", func(w *world, _ *AttestedNode) { w.bind("node") }, endOfFacts - 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, n := newWorld(t), attested()
			tt.change(w, n)
			facts, err := w.checkNodeOf(t, n)
			if err != nil {
				t.Fatal(err)
			}
			if facts.Facts != tt.want {
				t.Errorf("stands on %v, want %v", facts.Facts, tt.want)
			}
			if facts.Node != *w.objects.node || facts.Machine != *w.machine {
				t.Errorf("node %+v, machine %+v", facts.Node, facts.Machine)
			}
		})
	}
}

// TestNodeCheckRefuses lets one source at a time disagree with all others: each
// disagreement has its own check.
func TestNodeCheckRefuses(t *testing.T) {
	const other = "gce://p/z/b"
	for _, tt := range []struct {
		name   string
		change func(w *world, n *AttestedNode)
		check  Check
	}{
		{"the token's node name", func(w *world, _ *AttestedNode) { w.claims.Kubernetes.Node.Name = "node-b" }, checkNodeName},
		{"the token's node UID", func(w *world, _ *AttestedNode) { w.claims.Kubernetes.Node.UID = "x" }, checkNodeClaimUID},
		{"the attested name", func(_ *world, n *AttestedNode) { n.Name = "node-b" }, checkNodeName},
		{"the attested UID", func(_ *world, n *AttestedNode) { n.UID = "x" }, checkAttestedUID},
		{"the attested provider ID", func(_ *world, n *AttestedNode) { n.ProviderID = other }, checkCertificateProviderID},
		{"the attested machine", func(_ *world, n *AttestedNode) { n.Machine = "ek:sha256:bb" }, checkRegisteredMachine},
		{"the attested machine's object", func(_ *world, n *AttestedNode) { n.MachineUID = "x" }, checkRegisteredMachineUID},
		{"the Node's UID", func(w *world, _ *AttestedNode) { w.objects.node.UID = "x" }, checkNodeUID},
		{"the Node's UID, not attested", func(w *world, n *AttestedNode) { w.objects.node.UID, n.UID = "x", "" }, checkNodeUID},
		{"the Node's provider ID", func(w *world, _ *AttestedNode) { w.objects.node.ProviderID = other }, checkNodeProviderID},
		{"the registered provider ID", func(w *world, _ *AttestedNode) { w.machine.ProviderID = other }, checkRegisteredProviderID},
		{"the registered machine", func(w *world, _ *AttestedNode) { w.machine.Identity = "ek:sha256:bb" }, checkRegisteredMachine},

		{"no node in the token", func(w *world, _ *AttestedNode) { w.bind("pod") }, checkNodeClaim},
		{"a node without name in the token", func(w *world, _ *AttestedNode) { w.claims.Kubernetes.Node.Name = "" }, checkNodeClaim},
		{"a node without UID in the token", func(w *world, _ *AttestedNode) { w.claims.Kubernetes.Node.UID = "" }, checkNodeClaimUID},
		{"no Node", func(w *world, _ *AttestedNode) { w.objects.node = nil }, checkNodeGone},
		{"a deleted Node", func(w *world, _ *AttestedNode) { w.objects.node.Deleted = w.ago(1) }, checkNodeDeleted},
		{"no provider ID of the Node", func(w *world, _ *AttestedNode) { w.objects.node.ProviderID = "" }, checkNodeProviderID},
		{"the same, no extension", func(w *world, n *AttestedNode) { w.objects.node.ProviderID, n.ProviderID = "", "" }, checkNodeProviderID},
		{"the same, not registered", func(w *world, _ *AttestedNode) { w.objects.node.ProviderID, w.machine.ProviderID = "", "" }, checkNodeProviderID},
		{"no machine", func(w *world, _ *AttestedNode) { w.machine = nil }, checkMachineUnknown},
		{"no name", func(_ *world, n *AttestedNode) { n.Name = "" }, checkNodeName},

		{"no extension, registry disagrees", func(w *world, n *AttestedNode) { w.machine.ProviderID, n.ProviderID = other, "" }, checkRegisteredProviderID},
		{"not registered, extension disagrees", func(w *world, n *AttestedNode) { w.machine.ProviderID, n.ProviderID = "", other }, checkCertificateProviderID},
		{"three provider IDs", func(w *world, n *AttestedNode) { w.machine.ProviderID, n.ProviderID = "x", other }, checkCertificateProviderID},

		{"registry knows nothing", func(w *world, _ *AttestedNode) { *w.machine = RegisteredMachine{} }, checkFacts},
		{"machine not attested, registry knows it alone", func(w *world, n *AttestedNode) {
			n.Machine, n.MachineUID, w.machine.ProviderID = "", "", ""
		}, checkFacts},
		{"nothing of the presenter but its Node", func(_ *world, n *AttestedNode) { n.ProviderID, n.Machine, n.MachineUID = "", "", "" }, checkFacts},
		{"a machine that the registry does not know", func(w *world, n *AttestedNode) { n.MachineUID, w.machine.Identity = "", "" }, checkFacts},
		{"a machine's object that the registry does not know", func(w *world, n *AttestedNode) { n.Machine, w.machine.UID = "", "" }, checkFacts},
		{"nothing of the presenter but its name", func(_ *world, n *AttestedNode) { *n = AttestedNode{Name: "node-a"} }, checkFacts},
		{"nor does the registry know machines", func(w *world, n *AttestedNode) {
			n.UID, n.ProviderID, w.machine.Identity, w.machine.UID = "", "", "", ""
		}, checkFacts},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, n := newWorld(t), attested()
			tt.change(w, n)
			facts, err := w.checkNodeOf(t, n)
			wantCheck(t, err, tt.check)
			if facts != nil || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, %v; want a refusal without facts", facts, err)
			}
		})
	}
}

// Node, certificate and registry each spell a machine of Azure in their own way; one that is in
// another cloud has one spelling.
func TestNodeCheckProviderIDsOfAzure(t *testing.T) {
	for prefix, ok := range map[string]bool{"azure:///": true, "gce://": false} {
		w, n := newWorld(t), attested()
		w.objects.node.ProviderID, n.ProviderID, w.machine.ProviderID = prefix+"p/z/a", prefix+"p/Z/a", prefix+"P/z/a"
		facts, err := w.checkNodeOf(t, n)
		if (err == nil) != ok || ok && !facts.Facts.Has(FactCertificateProviderID|FactRegisteredProviderID) {
			t.Errorf("%s: got %v, %v", prefix, facts, err)
		}
	}
}

func TestNodeCheckRequire(t *testing.T) {
	w := newWorld(t)
	r := w.result(t)
	c := w.nodeCheck()
	c.Require = FactCertificateProviderID
	if _, err := c.Check(t.Context(), w.objects, r, attested(), w.now); err != nil {
		t.Error(err)
	}
	n := attested()
	n.ProviderID = ""
	_, err := c.Check(t.Context(), w.objects, r, n, w.now)
	wantCheck(t, err, checkFacts)
}

// TestNodeCheckFormerMachine: the name of a node went to another machine, whose Node,
// registration and token all agree. The machine that had the name presents the token with
// the certificate that it still has: any fact about it but its name gives it away,
// and where nothing is, that is too little.
func TestNodeCheckFormerMachine(t *testing.T) {
	former := attested()
	for _, tt := range []struct {
		name  string
		node  AttestedNode
		check Check
	}{
		{"its name", AttestedNode{Name: former.Name}, checkFacts},
		{"its Node", AttestedNode{Name: former.Name, UID: former.UID}, checkAttestedUID},
		{"its machine", AttestedNode{Name: former.Name, Machine: former.Machine}, checkRegisteredMachine},
		{"the machine's object", AttestedNode{Name: former.Name, MachineUID: former.MachineUID}, checkRegisteredMachineUID},
		{"its provider ID", AttestedNode{Name: former.Name, ProviderID: former.ProviderID}, checkCertificateProviderID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.objects.node.UID, w.claims.Kubernetes.Node.UID = "node-uid-2", "node-uid-2"
			w.objects.node.ProviderID = "gce://p/z/new"
			*w.machine = RegisteredMachine{Identity: "ek:sha256:new", ProviderID: "gce://p/z/new", UID: "machine-uid-2"}
			_, err := w.checkNodeOf(t, &tt.node)
			wantCheck(t, err, tt.check)
		})
	}
}

// TestNodeCheckFormerMachineOfAKeptNode goes through all that can be known of the machine that had
// a node's name, of the one that has it now, and of the Node, where the former presents a token of
// the latter's: none lets it pass. The Node may be the one that it was attested for, and the
// provider ID may have been given to both.
func TestNodeCheckFormerMachineOfAKeptNode(t *testing.T) {
	or := func(mask *int, value string) string {
		bit := *mask & 1
		*mask >>= 1
		if bit == 1 {
			return value
		}
		return ""
	}
	passed := 0
	const combinations = 1 << 9
	for i := range combinations {
		for _, providerID := range []string{"gce://p/z/former", "gce://p/z/a"} {
			mask := i
			former := &AttestedNode{Name: "node-a", UID: or(&mask, "node-uid"), ProviderID: or(&mask, providerID), Machine: or(&mask, "ek:sha256:former"), MachineUID: or(&mask, "former-uid")}
			node := &Object{Name: "node-a", UID: "node-uid", ProviderID: or(&mask, "gce://p/z/a")}
			machine := &RegisteredMachine{Identity: or(&mask, "ek:sha256:aa"), ProviderID: or(&mask, "gce://p/z/a"), UID: or(&mask, "machine-uid")}
			if kept := or(&mask, "yes"); kept == "" {
				node.UID = "node-uid-2"
			}
			if former.ProviderID == "gce://p/z/a" && former.Machine == "" && former.MachineUID == "" {
				continue // then no known fact tells the two apart
			}
			c := NodeCheck{FindMachine: func(context.Context, string) (*RegisteredMachine, error) { return machine, nil }}
			facts, err := c.compare(t.Context(), &Ref{Name: "node-a", UID: node.UID}, former, node, time.Now())
			if err == nil {
				passed++
				t.Errorf("%+v passes by %s; Node %+v, registered %+v", *former, facts.Facts, *node, *machine)
			}
		}
	}
	t.Logf("%d of %d combinations let the former machine pass", passed, 2*combinations)
}

// TestNodeCheckInsecureAllowUnattested does without the presenter, and without nothing else.
func TestNodeCheckInsecureAllowUnattested(t *testing.T) {
	w := newWorld(t)
	r := w.result(t)
	c := w.nodeCheck()
	c.InsecureAllowUnattested = true
	facts, err := c.Check(t.Context(), w.objects, r, &AttestedNode{Name: "node-a"}, w.now)
	if want := FactNodeName | FactNodeUID | FactRegisteredProviderID; err != nil || facts.Facts != want {
		t.Errorf("got %v, %v, want %v", facts, err, want)
	}
	_, err = c.Check(t.Context(), w.objects, r, &AttestedNode{Name: "node-a", Machine: "ek:sha256:bb"}, w.now)
	wantCheck(t, err, checkRegisteredMachine)
	w.machine.ProviderID = ""
	_, err = c.Check(t.Context(), w.objects, r, &AttestedNode{Name: "node-a"}, w.now)
	wantCheck(t, err, checkFacts)
}

func TestNodeCheckNeedsResult(t *testing.T) {
	w := newWorld(t)
	for _, r := range []*Result{nil, {}, {Claims: w.claims}} {
		_, err := w.nodeCheck().Check(t.Context(), w.objects, r, attested(), w.now)
		wantCheck(t, err, checkUnvalidated)
	}
	r, err := w.strict(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.nodeCheck().Check(t.Context(), w.objects, r, attested(), w.now); err != nil {
		t.Error(err)
	}
	_, err = w.nodeCheck().Check(t.Context(), w.objects, r, nil, w.now)
	wantCheck(t, err, checkNodeName)
	_, err = NodeCheck{}.Check(t.Context(), w.objects, r, attested(), w.now)
	wantCheck(t, err, refusal.CheckConfig)
}

// A copy of a result, with other claims or with the same, counts as unvalidated.
func TestNodeCheckRefusesCopies(t *testing.T) {
	w := newWorld(t)
	r, err := w.strict(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	same := *r
	other := *r
	changed := *r.Claims
	changed.Kubernetes.Node = &Ref{Name: "node-b", UID: "node-uid"}
	other.Claims = &changed
	for name, r := range map[string]*Result{"same": &same, "other claims": &other, "without claims": InsecureResult(Result{})} {
		_, err := w.nodeCheck().Check(t.Context(), w.objects, r, attested(), w.now)
		if err == nil {
			t.Fatalf("%s: accepted", name)
		}
		wantCheck(t, err, checkUnvalidated)
	}
	if _, err := w.nodeCheck().Check(t.Context(), w.objects, InsecureResult(same), attested(), w.now); err != nil {
		t.Errorf("on the caller's word: %v", err)
	}
}
