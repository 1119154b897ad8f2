package attesttest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
)

// evidenceAttacks put good evidence where it does not belong.
func (w *World) evidenceAttacks() []Attack {
	other := func(i wish) func(context.Context, *attempt, *Applicant) (*csr.Bundle, error) {
		change := i.change
		i.change = func(a *forge.Asked) {
			a.PKCS10.Key = w.bench.TLS2
			if change != nil {
				change(a)
			}
		}
		return func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
			source, _ := a.applicant(i)
			return a.prove(ctx, source)
		}
	}
	data := func(name, what string, change func([]byte) []byte) Attack {
		return asked(ClassBinding, name, what, wish{change: onBundle(func(b *csr.Bundle) { b.Data = change(bytes.Clone(b.Data)) })})
	}
	return []Attack{
		asked(ClassBinding, "evidence-of-another-key", "Node-1's evidence for one key follows its request for another.", wish{prove: other(wish{})}),
		asked(ClassBinding, "evidence-of-another-node", "Node-2's evidence follows a request for node-1.", wish{prove: other(wish{machine: MachineTwo, change: as(NodeName2)})}),
		asked(ClassBinding, "evidence-of-a-client-for-serving", "Evidence for a client certificate follows a request for a serving certificate.", wish{good: w.bench.NodeServes, prove: other(wish{})}),
		data("evidence-first-byte-changed", "The evidence's first byte was changed.", func(b []byte) []byte { b[0] ^= 1; return b }),
		data("evidence-byte-changed", "A byte in the middle of the evidence was changed.", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
		data("evidence-last-byte-changed", "The evidence's last byte was changed.", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		data("evidence-truncated", "The evidence lacks its last byte.", func(b []byte) []byte { return b[:len(b)-1] }),
		data("evidence-extended", "A byte follows the evidence.", func(b []byte) []byte { return append(b, 0) }),
		{Name: "evidence-of-yesterday", Class: ClassBinding, Description: "A request that was good yesterday is filed again today.", make: filedAgain},
	}
}

// filedAgain takes an honest request and lets a day pass, for good.
func filedAgain(ctx context.Context, a *attempt) (*csr.Request, error) {
	request, err := honest(wish{})(ctx, a)
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	a.advance(24 * time.Hour)
	request.Metadata.CreationTimestamp = a.Now().Add(-time.Minute)
	return request, nil
}

// machineAttacks are machines that want to be nodes that they are not.
func machineAttacks() []Attack {
	return []Attack{
		asked(ClassBinding, "stranger", "A machine that nobody expects, but with good evidence, wants to be node-1.", wish{machine: Stranger}),
		asked(ClassBinding, "stranger-with-annotation", "The same machine says in an annotation that it has machine-1's endorsement key.", wish{machine: Stranger, change: onObject(func(r *csr.Request) {
			r.Metadata.Annotations = map[string]string{csr.AnnotationEndorsementKey: MachineOne}
		})}),
		asked(ClassBinding, "machine-of-another-node", "Machine-2 wants to be node-1.", wish{machine: MachineTwo}),
		asked(ClassBinding, "second-name-for-a-machine", "Machine-1 wants to be node-2.", wish{change: as(NodeName2)}),
		asked(ClassBinding, "node-unknown", "Machine-1 wants to be a node that is in no inventory.", wish{change: as("node-9")}),
		asked(ClassBinding, "node-not-ready", "Machine-1 wants to be a node whose machine is not ready.", wish{change: as("node-3")}),
		asked(ClassBinding, "node-of-nobody-by-stranger", "A machine that nobody expects wants to be a node that is in no inventory.", wish{machine: Stranger, change: as("node-9")}),
	}
}

// failureAttacks switch something off and count on a provider that then says yes.
func failureAttacks() []Attack {
	return []Attack{
		{Name: "inventory-down", Class: ClassFailure, Description: "The inventory does not answer. A provider must neither accept nor refuse for good.",
			make: func(ctx context.Context, a *attempt) (*csr.Request, error) { return wish{}.make(ctx, a) }},
	}
}

func as(node string) func(*forge.Asked) { return func(a *forge.Asked) { a.As(node) } }

func onObject(how func(*csr.Request)) func(*forge.Asked) {
	return func(a *forge.Asked) { a.OnObject(how) }
}

func onBundle(how func(*csr.Bundle)) func(*forge.Asked) {
	return func(a *forge.Asked) { a.OnBundle(how) }
}
