package bootstraptokentest

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// Impostor is a way to pass for a cluster.
type Impostor int

// The impostors. Each has an address and a CA of its own, and one thing more.
const (
	// WrongSecret knows the ID of the token, which is public, and makes up a secret:
	// bootstraptoken.CheckSignature.
	WrongSecret Impostor = iota + 1
	// WrongCA has the token, from a node that once joined, and publishes its own CA:
	// bootstraptoken.CheckPinned.
	WrongCA
	// MixedBundle has the token too, and publishes the cluster's CA beside its own. A
	// client that trusts a whole bundle for the sake of one pin, as kubeadm does, takes
	// it for the cluster: bootstraptoken.CheckCertificate.
	MixedBundle
	// TamperedKubeconfig publishes the cluster's document and signatures with another
	// server in it: bootstraptoken.CheckSignature.
	TamperedKubeconfig
	// Relay publishes what the cluster does, unchanged, under its own certificate:
	// bootstraptoken.CheckCertificate.
	Relay
)

// NewImpostor starts an impostor of the cluster, and closes it when the test ends.
func (c *Cluster) NewImpostor(t testing.TB, kind Impostor) *Cluster {
	t.Helper()
	return forTest(t)(c.Impostor(kind))
}

// Impostor starts a server that passes for the cluster; the caller closes it. What the
// cluster changes later does not reach it.
func (c *Cluster) Impostor(kind Impostor) (*Cluster, error) {
	opts := Options{Token: c.Token(), Now: c.options.Now}
	if kind == WrongSecret {
		_, secret, _ := strings.Cut(bootstraptoken.Generate().Reveal(), ".")
		var err error
		if opts.Token, err = bootstraptoken.New(c.Token().ID(), secret); err != nil {
			return nil, err
		}
	}
	i, err := Open(opts)
	if err != nil {
		return nil, err
	}
	if err := i.pretend(kind, c); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

func (c *Cluster) pretend(kind Impostor, genuine *Cluster) error {
	switch kind {
	case WrongSecret, WrongCA:
		return nil
	case MixedBundle:
		info := c.Info()
		info.CAs = append(genuine.Info().CAs, info.CAs...)
		data, err := bootstraptoken.NewClusterInfoData(info)
		if err != nil {
			return err
		}
		c.SetData(data)
		return c.Sign()
	case TamperedKubeconfig:
		data := genuine.Data()
		info := genuine.Info()
		kubeconfig := data[bootstraptoken.KubeconfigKey]
		data[bootstraptoken.KubeconfigKey] = strings.Replace(kubeconfig, info.Server, c.URL(), 1)
		c.SetData(data)
		return nil
	case Relay:
		c.SetData(genuine.Data())
		return nil
	}
	return errors.New("bootstraptokentest: no such impostor")
}
