package bootstraptokentest

import (
	"context"
	"strings"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// AddSecret adds a token to the cluster, in the place of one with the same ID, and signs
// the discovery document if the token has that usage.
func (c *Cluster) AddSecret(s *bootstraptoken.Secret) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addSecret(s)
}

func (c *Cluster) addSecret(s *bootstraptoken.Secret) error {
	if _, err := s.Object(); err != nil {
		return err
	}
	added := *s
	c.secrets[s.Token.ID()] = &added
	return c.sign()
}

// DeleteSecret takes a token away, and its signature.
func (c *Cluster) DeleteSecret(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.secrets, id)
	return c.sign()
}

// Sign brings the signatures of the discovery document up to date, as the bootstrap signer
// of a cluster does: after a token expired, or after SetData.
func (c *Cluster) Sign() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sign()
}

func (c *Cluster) sign() error {
	if c.data == nil {
		return nil
	}
	objects := make([]*bootstraptoken.Object, 0, len(c.secrets))
	for _, s := range c.secrets {
		object, err := s.Object()
		if err != nil {
			return err
		}
		objects = append(objects, object)
	}
	signing, err := bootstraptoken.Sign(c.data, objects, c.options.Now())
	if err != nil {
		return err
	}
	c.data = signing.Data
	return nil
}

// Secret returns a token Secret as the API would: it is a bootstraptoken.SecretGetter.
func (c *Cluster) Secret(_ context.Context, namespace, name string) (*bootstraptoken.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, _ := strings.CutPrefix(name, bootstraptoken.SecretNamePrefix)
	s := c.secrets[id]
	if s == nil || namespace != bootstraptoken.Namespace || name != bootstraptoken.SecretName(id) {
		return nil, bootstraptoken.ErrNotFound
	}
	return s.Object()
}
