package kubectl

import (
	"context"
	"fmt"
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

// token makes a bootstrap token for a node whose certificates have all expired, and writes it to
// standard output only. With it the node's machine can request the node's certificate; its evidence is
// still verified.
func (p *plugin) token(ctx context.Context, nodeName string) error {
	record, r, err := p.bound(ctx, nodeName)
	switch {
	case err != nil:
		return err
	case r.Scope().Road == attest.RoadDocument:
		return fmt.Errorf("node %s is not recorded by a TPM, and a copy of its document or its name alone must not get a second key with a token: "+
			"run kubectl nodeattest release %[1]s, and let the machine join again", nodeName)
	case p.machine != "" && p.machine != string(record.Machine):
		return otherMachine(record, p.machine)
	}
	made, err := bootstraptoken.Create(bootstraptoken.CreateOptions{
		Description: "for node " + record.NodeName + ", by kubectl nodeattest token",
		TTL:         tokenTTL,
		Usages:      bootstraptoken.Usages{Authentication: true},
		Groups:      []string{csr.TokenGroup(record.NodeName)},
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
	fmt.Fprintf(p.err, "bootstrap token for node %s and machine %s, valid until %s\n", record.NodeName, refusal.Text(string(record.Machine)), made.Expiration.Format(time.RFC3339))
	_, err = fmt.Fprintln(p.out, made.Token.Reveal())
	return err
}
