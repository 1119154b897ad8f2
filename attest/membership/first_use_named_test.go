package membership

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// TestFirstUseOfNamedMachine has a node run whose record was lost: it renews if the inventory names
// this very machine for it. Trust on first use alone still refuses, as does the name of another machine.
func TestFirstUseOfNamedMachine(t *testing.T) {
	const ours, other = "test:1", "test:2"
	for name, c := range map[string]struct {
		class    csr.RequesterClass
		identity string // in the inventory
		exists   bool   // a Node of the name
		document bool
		check    attest.Check // "": it is admitted
	}{
		"named, as the node":                            {csr.RequesterNode, ours, true, false, ""},
		"named, as the node, and the Node is gone":      {csr.RequesterNode, ours, false, false, ""},
		"named, with a bootstrap token":                 {csr.RequesterBootstrap, ours, true, false, ""},
		"another is named, as the node":                 {csr.RequesterNode, other, true, false, checkRegistryRequester},
		"another is named, with a bootstrap token":      {csr.RequesterBootstrap, other, true, false, checkRegistryNode},
		"none is named, as the node":                    {csr.RequesterNode, "", true, false, checkRegistryRequester},
		"none is named, with a bootstrap token":         {csr.RequesterBootstrap, "", true, false, checkRegistryNode},
		"a document, named, as the node":                {csr.RequesterNode, ours, true, true, ""},
		"a document, named, with a bootstrap token":     {csr.RequesterBootstrap, ours, true, true, checkRegistryNode},
		"a document, named, and without a Node":         {csr.RequesterBootstrap, ours, false, true, ""},
		"a document, another is named, as the node":     {csr.RequesterNode, other, true, true, checkRegistryRequester},
		"a document, none is named, as the node":        {csr.RequesterNode, "", true, true, checkRegistryRequester},
		"a document, none is named, no Node, as a node": {csr.RequesterNode, "", false, true, checkRegistryRequester},
	} {
		for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
			t.Run(name+", "+stage.String(), func(t *testing.T) {
				scope := Scope{}
				if c.document {
					scope = documentScope
				}
				f := newFirstUse(t, scope)
				f.nodes["node-1"] = c.exists
				r := inventoried(t, answerOf(t, "node-1", ours), c.class, csr.Machine{UID: "uid-1", Identity: c.identity})
				if r.Stage = stage; c.document {
					r.Provider, r.Road = scope.Provider, scope.Road
				}
				if c.check != "" {
					for stage, err := range map[string]error{"hello": f.AuthorizeHello(t.Context(), r), "answer": second(f.Authorize(t.Context(), r))} { // the verifier refuses another machine before
						if !errors.Is(err, c.check) || !errors.Is(err, attest.CheckMembership) {
							t.Errorf("%s: got %v, want %s", stage, err, c.check)
						}
					}
					if _, err := asked(t, f, r); !errors.Is(err, attest.CheckMembership) {
						t.Error(err)
					}
					return
				}
				f.admit(t, r)
				if records := recordsOf(t, f.registry); stage == attest.StageAnswer && (len(records) != 1 || records[0].Machine != ours || records[0].State != StateBound) {
					t.Errorf("records %+v", records)
				}
			})
		}
	}
}

func second(_ *attest.Authorization, err error) error { return err }

// TestFirstUseOfNamedMachineOnly: a record of another machine, and another purpose than a client
// certificate, are refused whatever the inventory names.
func TestFirstUseOfNamedMachineOnly(t *testing.T) {
	f := newFirstUse(t, Scope{})
	machine := csr.Machine{UID: "uid-1", Identity: "test:1", DNSNames: []string{"node-1"}}
	serving := attest.NewResult(attest.StageAnswer, checkedRequest(t, "node-1", csr.RequesterNode, csr.PurposeServing, machine))
	serving.Machine, serving.Provider = "test:1", "tpm"
	f.refuse(t, serving, checkRegistryRequester)
	f.admit(t, inventoried(t, answerOf(t, "node-1", "test:2"), csr.RequesterBootstrap, csr.Machine{UID: "uid-1"}))
	f.refuse(t, inventoried(t, answerOf(t, "node-1", "test:1"), csr.RequesterNode, machine), checkRegistryName)
	f.refuse(t, inventoried(t, answerOf(t, "node-2", "test:2"), csr.RequesterNode, csr.Machine{UID: "uid-2", Identity: "test:2"}), checkRegistryMachine)
}
