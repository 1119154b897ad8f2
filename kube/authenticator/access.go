package authenticator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkCredential is the check that an attempt fails if there is no credential at all: the
// certificates have ended, and there is no bootstrap token.
const checkCredential refusal.Check = "no-credential"

// access is a credential for the API server.
type access struct {
	name string          // for people
	pair *certstore.Pair // if it is a client certificate
	open func(ctx context.Context) (*apiclient.Client, error)
}

// connection says how to reach the API server, without anybody's credentials.
func (a *Authenticator) connection() (bare, own *rest.Config, err error) {
	if own, err = a.c.API(); err != nil {
		return nil, nil, err
	}
	if own, err = apiclient.Load(own); err != nil {
		return nil, nil, err
	}
	return rest.AnonymousClientConfig(own), own, nil
}

// clusterIDs are the configured cluster ID, or else the customary ones of the CAs.
func (a *Authenticator) clusterIDs(c *rest.Config) ([]string, error) {
	if a.c.ClusterID != "" {
		return []string{a.c.ClusterID}, nil
	}
	all, err := apiclient.CAs(c)
	if err == nil && len(all) == 0 {
		err = refusal.Config("ClusterID", "", "one, as the configuration of the API server names no CA")
	}
	var ids []string
	for _, ca := range all {
		id, err := attest.ClusterID(ca)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) { // a CA that was made anew for its key has its ID
			ids = append(ids, id)
		}
	}
	return ids, err
}

// clusterID is the cluster ID to attest for. Of several CAs that counts under which the API
// server's certificate verifies.
func (a *Authenticator) clusterID(ctx context.Context, c *rest.Config, api *apiclient.Client) (string, error) {
	ids, err := a.clusterIDs(c)
	if err != nil || len(ids) == 1 {
		return strings.Join(ids, ""), err
	}
	ca, err := api.CA(ctx)
	if err != nil {
		return "", err
	}
	return attest.ClusterID(ca)
}

// accesses are the credentials to try, the best first: the client certificate, the recovery
// certificate, the bootstrap token. For anything but a client certificate, only the first can
// be used.
func (a *Authenticator) accesses(bare, own *rest.Config, e attest.Prover, purpose csr.Purpose) []access {
	var all []access
	c, t, now := a.certificates(a.items[0], role{}), a.readState()[ClientFile], a.c.Now()
	for _, p := range c.usable(t, now) {
		name := "the client certificate"
		if p != c.have {
			name += " of before"
		}
		all = append(all, access{name, p, func(context.Context) (*apiclient.Client, error) { return asNode(bare, p) }})
	}
	if purpose != csr.PurposeClient {
		return all
	}
	for _, i := range a.items {
		keeper, ok := e.(keyKeeper)
		if p := a.inHand(i); ok && p != nil && i.purpose == csr.PurposeRecovery {
			all = append(all, access{"the recovery certificate", nil, func(ctx context.Context) (*apiclient.Client, error) {
				return sealedClient(ctx, bare, keeper, p)
			}})
		}
	}
	if hasCredential(own) {
		all = append(all, access{"the bootstrap credential", nil, func(context.Context) (*apiclient.Client, error) {
			return apiclient.Connect(own, nil)
		}})
	}
	return all
}

// hasCredential reports whether the configuration of the API server has one.
func hasCredential(c *rest.Config) bool { return c.BearerToken != "" || len(c.CertData) != 0 }

// sealedClient connects with a key that stays in the machine.
func sealedClient(ctx context.Context, bare *rest.Config, keeper keyKeeper, p *certstore.Pair) (*apiclient.Client, error) {
	key, err := keeper.LoadKey(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	if err := p.CheckKey(key.Public()); err != nil {
		return nil, errors.Join(err, key.Close())
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: p.Leaf}
	for block, rest := pem.Decode(p.Chain); block != nil; block, rest = pem.Decode(rest) {
		pair.Certificate = append(pair.Certificate, block.Bytes)
	}
	return apiclient.Connect(bare, pair)
}

// checkCertificate checks a new certificate against what was asked for: a signer may return
// another node's certificate, or one for another purpose, which is of no use.
func (a *Authenticator) checkCertificate(i *item, leaf *x509.Certificate) error {
	name, organization := csr.SubjectNames(i.purpose, a.c.NodeName)
	usage := x509.ExtKeyUsageClientAuth
	if i.purpose == csr.PurposeServing {
		usage = x509.ExtKeyUsageServerAuth
	}
	switch {
	case leaf.Subject.CommonName != name || len(leaf.Subject.Organization) != 1 || leaf.Subject.Organization[0] != organization:
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate for " + leaf.Subject.String(), Want: "CN=" + name + ",O=" + organization}
	case len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != usage:
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate for another use", Want: "one for a " + i.purpose.String()}
	}
	return nil
}
