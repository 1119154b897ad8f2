package bootstraptoken

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
)

// A fetched is the data of a cluster-info ConfigMap and the connection over which it
// came.
type fetched struct {
	data       map[string]string
	connection *tls.ConnectionState
}

// clusterInfo reads the ConfigMap from a server that roots, not nil, are to verify.
func (n *Network) clusterInfo(ctx context.Context, server *url.URL, roots *x509.CertPool) (*fetched, error) {
	return n.fetch(ctx, server, n.verifiedTLS(roots))
}

// insecureClusterInfo reads the ConfigMap from a server that nobody verifies: its data
// must be believed for its signature alone.
func (n *Network) insecureClusterInfo(ctx context.Context, server *url.URL) (map[string]string, error) {
	f, err := n.fetch(ctx, server, n.insecureTLS())
	if err != nil {
		return nil, err
	}
	return f.data, nil
}

func (n *Network) fetch(ctx context.Context, server *url.URL, config *tls.Config) (*fetched, error) {
	reply, err := n.get(ctx, &request{url: below(server, clusterInfoPath), tls: config, maxSize: MaxConfigMapSize, json: true})
	if err != nil {
		return nil, err
	}
	data, err := ParseConfigMap(reply.body)
	if err != nil {
		return nil, err
	}
	return &fetched{data, reply.connection}, nil
}
