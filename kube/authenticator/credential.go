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

// checkCredential is the check that an attempt fails if there is no credential for the API server: the
// certificates have expired, and there is no bootstrap token.
const checkCredential refusal.Check = "no-credential"

// credential is a credential for the API server.
type credential struct {
	name   string // for logs
	config *rest.Config
	pair   *certstore.Pair // the client certificate; nil for the credential of config
}

// connection returns the configuration of the API server, without credentials and as it is.
func (a *Authenticator) connection() (anonymous, configured *rest.Config, err error) {
	if configured, err = a.config.API(); err != nil {
		return nil, nil, apiclient.WithoutPasswords(err)
	}
	if configured, err = apiclient.Load(configured); err != nil {
		return nil, nil, err
	}
	return rest.AnonymousClientConfig(configured), configured, nil
}

// reportUntrusted calls Untrusted after an error about the API server's certificate.
func (a *Authenticator) reportUntrusted(err error) {
	if a.config.Untrusted != nil && errors.Is(err, apiclient.CheckServerCertificate) {
		a.config.Untrusted()
	}
}

// clusterIDs returns the configured cluster ID, or else the default ones of the CAs.
func (a *Authenticator) clusterIDs(c *rest.Config) ([]string, error) {
	if a.config.ClusterID != "" {
		return []string{a.config.ClusterID}, nil
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
		if !slices.Contains(ids, id) { // a CA certificate that was renewed with the same key has the same ID
			ids = append(ids, id)
		}
	}
	return ids, err
}

// clusterID returns the cluster ID to attest for. With several CAs, the one that verifies the API
// server's certificate is used.
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

// credentials returns the credentials to try, the best first: the client certificate, the recovery
// certificate, the bootstrap token. A serving or recovery certificate is requested with the client
// certificate only. Without evidence, the client certificate is not used: it gets no second one.
func (r *renewal) credentials() []credential {
	var all []credential
	client := r.a.slots[0]
	for _, p := range r.usable(client) {
		if client.Once {
			break
		}
		name := "the client certificate"
		if p != r.certificates(client).have {
			name = "the previous client certificate"
		}
		all = append(all, credential{name, r.anonymous, p})
	}
	if r.slot.Purpose != csr.PurposeClient {
		return all
	}
	_, keeps := r.evidence.Prover.(keyKeeper)
	for _, s := range r.a.slots {
		if p := r.current(s); keeps && p != nil && s.Purpose == csr.PurposeRecovery {
			all = append(all, credential{"the recovery certificate", r.anonymous, p})
		}
	}
	if hasCredential(r.configured) {
		all = append(all, credential{"the bootstrap credential", r.configured, nil})
	}
	return all
}

// freshToken says how the node gets a token.
func (a *Authenticator) freshToken() string {
	return "the machine's administrator puts a fresh bootstrap token into the kubeconfig, from an operator's kubectl nodeattest token " + a.config.NodeName
}

// hasCredential reports whether the configuration of the API server has a token or a certificate.
func hasCredential(c *rest.Config) bool { return c.BearerToken != "" || len(c.CertData) != 0 }

// connect returns a client with the credential. It loads a sealed key into the machine's TPM.
func (c credential) connect(ctx context.Context, evidence attest.Prover) (*apiclient.Client, error) {
	p := c.pair
	if p == nil {
		return apiclient.Connect(c.config, nil)
	}
	keeper, ok := evidence.(keyKeeper)
	if !p.Sealed || !ok {
		config := rest.CopyConfig(c.config)
		config.CertData, config.KeyData = p.Chain, p.Key
		return apiclient.Connect(config, nil)
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
	return apiclient.Connect(c.config, pair)
}
