package bootstraptokentest

import (
	"context"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// Sign brings the signature of the discovery document up to date, as the bootstrap signer
// of a cluster does: after the token expired, or after SetData.
func (c *Cluster) Sign() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sign()
}

func (c *Cluster) sign() error {
	if c.data == nil {
		return nil
	}
	signing, err := bootstraptoken.Sign(c.data, []*bootstraptoken.Object{c.secret}, c.options.Now())
	if err == nil {
		c.data = signing.Data
	}
	return err
}

// Secret returns the token's Secret as the API would: it is a bootstraptoken.SecretGetter.
func (c *Cluster) Secret(_ context.Context, namespace, name string) (*bootstraptoken.Object, error) {
	if namespace != c.secret.Namespace || name != c.secret.Name {
		return nil, bootstraptoken.ErrNotFound
	}
	o := *c.secret
	return &o, nil
}
