package kubectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// tokenTTL is the validity of a token.
const tokenTTL = time.Hour

// token makes a bootstrap token for a node whose certificates have all expired, or with --new for a
// machine that never joined, and writes it to standard output only. With it the machine can request the
// node's certificate; its evidence is still verified.
func (p *plugin) token(ctx context.Context, nodeName string) error {
	of := p.recorded
	if p.newNode {
		of = p.listed
	}
	machine, err := of(ctx, nodeName)
	if err != nil {
		return err
	}
	discover := ""
	if p.join {
		if discover, err = p.discoverCommand(ctx); err != nil {
			return err
		}
	}
	made, err := bootstraptoken.Create(bootstraptoken.CreateOptions{
		Description: "for node " + nodeName + ", by kubectl nodeattest token",
		TTL:         tokenTTL,
		Usages:      bootstraptoken.Usages{Authentication: true, Signing: p.join},
		Groups:      []string{csr.TokenGroup(nodeName)},
	}, p.now())
	if err != nil {
		return err
	}
	object, err := made.Object()
	if err != nil {
		return err
	}
	if err := p.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name},
		Type:       corev1.SecretType(object.Type),
		Data:       object.Data.Reveal(),
	}); err != nil {
		return err
	}
	fmt.Fprintf(p.err, "bootstrap token for node %s and %s, valid until %s\n", nodeName, machine, made.Expiration.Format(time.RFC3339))
	if discover != "" {
		fmt.Fprintf(p.err, "on the machine, with the token in FILE: %s\n", discover)
	}
	_, err = fmt.Fprintln(p.out, made.Token.Reveal())
	return err
}

// recorded returns the machine of a recorded node that may get a token, for people.
func (p *plugin) recorded(ctx context.Context, nodeName string) (string, error) {
	record, r, err := p.bound(ctx, nodeName)
	switch {
	case err != nil:
		return "", err
	case r.Scope().Road == attest.RoadDocument:
		return "", fmt.Errorf("node %s is not recorded by a TPM, and a copy of its document or its name alone must not get a second key with a token: "+
			"run kubectl nodeattest release %[1]s, and let the machine join again", nodeName)
	case p.machine != "" && p.machine != string(record.Machine):
		return "", otherMachine(record, p.machine)
	}
	return "machine " + refusal.Text(string(record.Machine)), nil
}

// listed returns, for people, the machine of a node that the inventory has and that has no record.
func (p *plugin) listed(ctx context.Context, nodeName string) (string, error) {
	record, _, err := p.record(ctx, nodeName)
	switch {
	case err != nil:
		return "", err
	case record != nil:
		return "", fmt.Errorf("node %s has a record, which is %s, of machine %s: see kubectl nodeattest token %[1]s without --new",
			nodeName, record.State, refusal.Text(string(record.Machine)))
	}
	inventory, err := p.inventory(ctx)
	if err != nil {
		return "", fmt.Errorf("%w; Cluster API's Machines have tokens of their own in their boot data", err)
	}
	machine, err := inventory.Machine(ctx, csr.Question{NodeName: nodeName})
	if err != nil && !errors.Is(err, csr.ErrNoMachine) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("the inventory has no node %s, so the controller would refuse its machine: add the node to the inventory first", refusal.Quote(nodeName))
	}
	if machine.Identity == "" {
		return "a machine that is not recorded yet", nil
	}
	return "machine " + refusal.Text(machine.Identity), nil
}

// discoverCommand returns the command by which a machine discovers the cluster, with the pins of the
// published document.
func (p *plugin) discoverCommand(ctx context.Context) (string, error) {
	_, info, err := p.published(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("--join: %w", err)
	case len(info.CAs) == 0:
		return "", errors.New("--join: the discovery document in kube-public/cluster-info has no CA, and a machine that discovers the cluster by a token needs one")
	}
	words := []string{"kubelet-authenticator discover --token-file FILE"}
	for _, pin := range info.Pins() {
		words = append(words, "--ca-cert-hash", pin.String())
	}
	server := info.Server
	if strings.ContainsAny(server, "[]") { // an IPv6 address, which a shell would take for a pattern
		server = "'" + server + "'"
	}
	return strings.Join(append(words, server), " "), nil
}
