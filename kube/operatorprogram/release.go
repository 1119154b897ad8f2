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
	becomes := "is free"
	if record.LastEnd.After(p.now()) {
		becomes = "rests until " + record.LastEnd.UTC().Format(time.RFC3339) + ", when the last certificate of its machine has expired"
	}
	if p.dryRun == "none" && !p.yes {
		if err := p.ask(fmt.Sprintf("Is machine %s gone? Then node %s %s, and until it is approved again this machine gets no certificate. [y/N] ",
			refusal.Text(string(record.Machine)), refusal.Text(nodeName), becomes)); err != nil {
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
	fmt.Fprintf(p.out, "node %s %s%s\n", nodeName, becomes, said)
	return nil
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
