package kubectl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/refusal"
)

// release frees the name of a node whose machine is gone.
func (p *plugin) release(ctx context.Context, nodeName string) error {
	record, r, err := p.record(ctx, nodeName)
	switch {
	case err != nil:
		return err
	case record == nil:
		return noRecord(nodeName)
	}
	becomes, atOnce := "is free", r.Scope() == insecure.Scope(ownCluster)
	switch end := record.LastEnd.UTC().Format(time.RFC3339); {
	case !record.LastEnd.After(p.now()):
	case atOnce: // no evidence tells two machines apart, and the certificate may be valid for a year
		becomes = "is free for the next bootstrap token, but its old certificate and key still authenticate as node " + refusal.Text(nodeName) + " until " + end
	default:
		becomes = "rests until " + end + ", when the last certificate of its machine has expired"
	}
	if p.dryRun == "none" {
		then := becomes
		if !atOnce {
			then += ", and the machine gets no certificate until it is approved again"
		}
		if err := p.confirm("machine", p.machine, record, fmt.Sprintf("Is machine %s gone? Then node %s %s. [y/N] ", record.Machine, nodeName, then)); err != nil {
			return err
		}
	}
	if now, _, err := p.record(ctx, nodeName); err != nil {
		return err
	} else if now == nil || now.Version != record.Version { // while the question was open
		return errChanged(nodeName)
	}
	said, store := "", p.client
	if p.dryRun == "server" {
		said, store = " (server dry run)", client.NewDryRunClient(store)
	}
	p.client = seen{store, record}
	if r, err = p.registry(r.Scope()); err != nil {
		return err
	}
	switch released, err := r.Release(ctx, nodeName, record.MachineUID); {
	case err != nil:
		return err
	case !released && record.State != membership.StateResting:
		return errChanged(nodeName)
	}
	if p.client = store; atOnce {
		if err := p.forget(ctx, nodeName); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.out, "node %s %s%s\n", nodeName, becomes, said)
	return nil
}

// forget deletes the record of a node without evidence.
func (p *plugin) forget(ctx context.Context, nodeName string) error {
	var object v1alpha1.AttestedNode
	if err := p.client.Get(ctx, client.ObjectKey{Name: nodeName}, &object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if object.Spec.Scope != insecure.Scope("").String() {
		return errChanged(nodeName)
	}
	return client.IgnoreNotFound(p.client.Delete(ctx, &object, client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}))
}

// seen reads a node's record only while it has the machine that the operator was shown.
type seen struct {
	client.Client
	record *membership.Record
}

func (s seen) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := s.Client.Get(ctx, key, into, options...); err != nil {
		return err
	}
	if n, ok := into.(*v1alpha1.AttestedNode); ok && n.Name == s.record.NodeName && n.Spec.Machine != string(s.record.Machine) {
		return errChanged(n.Name)
	}
	return nil
}

func errChanged(nodeName string) error {
	return fmt.Errorf("the record of node %s has changed: nothing was done; see kubectl nodeattest nodes", refusal.Text(nodeName))
}

// confirm has the operator confirm the recorded machine of a node, by a flag that names it or by an
// answer.
func (p *plugin) confirm(flag, named string, record *membership.Record, question string) error {
	switch {
	case named == "":
		yes, err := p.ask(question)
		if err == nil && !yes {
			err = fmt.Errorf("nothing was done: the answer was not y; or name the recorded machine with --%s", flag)
		}
		return err
	case named != string(record.Machine):
		return otherMachine(record, named)
	}
	return nil
}

// ask asks the operator a question, and reports whether the answer is y or yes.
func (p *plugin) ask(question string) (bool, error) {
	fmt.Fprint(p.err, refusal.Escape(question))
	answer, err := bufio.NewReader(io.LimitReader(p.in, 16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// otherMachine is the error that the operator named a machine other than the recorded one.
func otherMachine(record *membership.Record, named string) error {
	return fmt.Errorf("node %s is machine %s, not %s: nothing was done", record.NodeName, record.Machine, refusal.Text(named))
}
