package authenticator

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkCredential is the check that an attempt fails if there is no credential at all: the
// certificates have ended, and there is no bootstrap token.
const checkCredential refusal.Check = "no-credential"

// access is a credential for the API server.
type access struct {
	name   string // for people
	config *rest.Config
	pair   *certstore.Pair // the client certificate; nil for the credential of config
}

// connection says how to reach the API server, without credentials.
func (a *Authenticator) connection() (bare, own *rest.Config, err error) {
	if own, err = a.c.API(); err != nil {
		return nil, nil, apiclient.WithoutPasswords(err)
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
		err = refusal.Config("ClusterID", "", "the cluster's ID, since the kubeconfig names no CA")
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
// be used. A node without evidence is new each time: its certificate is not renewed.
func (v *view) accesses(bare, own *rest.Config, evidence attest.Prover, purpose csr.Purpose) []access {
	var all []access
	client := v.a.items[0]
	for _, p := range v.usable(client) {
		if client.Once {
			break
		}
		name := "the client certificate"
		if p != v.of(client).have {
			name += " of before"
		}
		all = append(all, access{name, bare, p})
	}
	if purpose != csr.PurposeClient {
		return all
	}
	_, keeps := evidence.(keyKeeper)
	for _, i := range v.a.items {
		if p := v.inHand(i); keeps && p != nil && i.Purpose == csr.PurposeRecovery {
			all = append(all, access{"the recovery certificate", bare, p})
		}
	}
	if hasCredential(own) {
		all = append(all, access{"the bootstrap credential", own, nil})
	}
	return all
}

// hasCredential reports whether the configuration of the API server has one.
func hasCredential(c *rest.Config) bool { return c.BearerToken != "" || len(c.CertData) != 0 }

// connect connects with the credential. A key that stays in the machine is loaded there.
func (w access) connect(ctx context.Context, evidence attest.Prover) (*apiclient.Client, error) {
	p := w.pair
	if p == nil {
		return apiclient.Connect(w.config, nil)
	}
	keeper, ok := evidence.(keyKeeper)
	if !p.Sealed || !ok {
		c := rest.CopyConfig(w.config)
		c.CertData, c.KeyData = p.Chain, p.Key
		return apiclient.Connect(c, nil)
	}
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
	return apiclient.Connect(w.config, pair)
}
