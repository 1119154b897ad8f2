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

// tokenTTL is for how long a node may come back with a token.
const tokenTTL = time.Hour

// token makes a bootstrap token for a node whose certificates have all ended, and writes it to
// standard output and nowhere else. It lets the node's machine ask for the node's certificate, and
// admits no machine without evidence.
func (p *plugin) token(ctx context.Context, nodeName string) error {
	record, r, err := p.bound(ctx, nodeName)
	switch {
	case err != nil:
		return err
	case r.Scope().Road == attest.RoadDocument:
		return fmt.Errorf("node %s is not known by a TPM, and whoever has its document, or only its name, gets no second key with a token: "+
			"kubectl nodeattest release %[1]s, and let the machine join anew", nodeName)
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
	fmt.Fprintf(p.err, "a bootstrap token for node %s and machine %s, until %s\n", record.NodeName, refusal.Text(string(record.Machine)), made.Expiration.Format(time.RFC3339))
	_, err = fmt.Fprintln(p.out, made.Token.Reveal())
	return err
}
