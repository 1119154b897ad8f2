package operatorprogram

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
	"github.com/nodeattest/nodeattest/kube/internal/insecure"
	"github.com/nodeattest/nodeattest/refusal"
)

// release says that a node's machine is gone.
func (p *plugin) release(ctx context.Context, nodeName string) error {
	if p.dryRun != "none" && p.dryRun != "server" {
		return fmt.Errorf("--dry-run=%s: want none or server; %w", refusal.Text(p.dryRun), errUsage)
	}
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
	case atOnce: // no evidence tells its machine from the next one, and its certificate may end in a year
		becomes = "is free for the next bootstrap token, and whoever has the key of its certificate is node " + refusal.Text(nodeName) + " until " + end + " all the same"
	default:
		becomes = "rests until " + end + ", when the last certificate of its machine has expired"
	}
	if p.dryRun == "none" && !p.yes {
		then := becomes
		if !atOnce {
			then += ", and until it is approved again this machine gets no certificate"
		}
		if err := p.ask(fmt.Sprintf("Is machine %s gone? Then node %s %s. [y/N] ", refusal.Text(string(record.Machine)), refusal.Text(nodeName), then)); err != nil {
			return err
		}
	}
	if now, _, err := p.record(ctx, nodeName); err != nil {
		return err
	} else if now == nil || now.Machine != record.Machine { // while the question was open
		return errChanged(nodeName)
	}
	said := ""
	if p.dryRun == "server" {
		said, p.client = " (server dry run)", client.NewDryRunClient(p.client)
		if r, err = p.registry(r.Scope()); err != nil {
			return err
		}
	}
	switch released, err := r.Release(ctx, nodeName, record.MachineUID); {
	case err != nil:
		return err
	case !released && record.State != membership.StateResting:
		return errChanged(nodeName)
	}
	if atOnce {
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

func errChanged(nodeName string) error {
	return fmt.Errorf("the record of node %s has changed: nothing was released", refusal.Text(nodeName))
}

var errNotAnswered = errors.New("not released: answer y, or say --yes")

// ask has the operator answer a question with yes.
func (p *plugin) ask(question string) error {
	fmt.Fprint(p.err, question)
	answer, err := bufio.NewReader(io.LimitReader(p.in, 16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errNotAnswered
	}
	return nil
}
