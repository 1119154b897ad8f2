package bootstraptoken

import (
	"context"
	"crypto/x509"
	"net/url"
)

// RefreshOptions say how a cluster is asked for its latest discovery document. Each zero
// field is a sensible default.
type RefreshOptions struct {
	// Addresses are those of other API servers, as in [DiscoverConfig], for the case
	// that the cluster's server does not lead to it. They are tried after it.
	Addresses []string
	// Pins, if there are any, keep the CAs that have no pin from being trusted. None
	// means that all CAs which the verified server names are trusted from now on.
	Pins []Pin
	// Token, if it is not the zero Token, must have signed the document. Bootstrap
	// tokens do not live long enough for most.
	Token Token
	// Network says how servers are reached.
	Network Network
}

// Refresh asks a cluster that is known for its latest discovery document (Kubernetes
// bootstrap discovery, "Client caching and update"): the cluster-info ConfigMap, over TLS
// verified by info. What it returns replaces info.
//
// That is how a rotation of the CA is survived: while both CAs are in the published
// bundle, a client that knows the old one learns the new one. One that slept through all
// that time is refused with [CheckCertificate] and must discover the cluster again. Pins
// are for the first contact: later it is the cluster, which proved who it is, that names
// its CAs, those too for which [Discover] had no pin. Give Pins here to keep them out.
//
// A cluster that is known by its CAs must go on naming some ([CheckNoCA]): the system's
// roots are no replacement. And the refreshed CAs must verify the server that sent them
// ([CheckLockout]), or the client would not find back.
//
// Other errors are those of [Discover]; they match [CheckForbidden] and [ErrRetry] where
// a cluster does not publish its document. kubeadm then goes on with what it has.
func Refresh(ctx context.Context, info *ClusterInfo, opts RefreshOptions) (*Discovered, error) {
	if err := info.check(); err != nil {
		return nil, err
	}
	if err := checkPins(opts.Pins); err != nil {
		return nil, err
	}
	servers, err := parseAddresses(append([]string{info.Server}, opts.Addresses...))
	if err != nil {
		return nil, err
	}
	roots, err := opts.Network.roots(info)
	if err != nil {
		return nil, err
	}
	return opts.Network.rounds(ctx, servers, func(ctx context.Context, server *url.URL) (*Discovered, error) {
		return opts.at(ctx, server, info, roots)
	})
}

// at refreshes from one server.
func (opts *RefreshOptions) at(ctx context.Context, server *url.URL, old *ClusterInfo, roots *x509.CertPool) (*Discovered, error) {
	data, connection, err := opts.Network.clusterInfo(ctx, server, opts.Network.verifiedTLS(roots))
	if err != nil {
		return nil, err
	}
	kubeconfig, err := opts.kubeconfig(data)
	if err != nil {
		return nil, err
	}
	found, err := discovered(kubeconfig, server, opts.Pins, old.SystemRoots)
	if err != nil {
		return nil, err
	}
	found.Verified = opts.Network.now()
	if roots, err = opts.Network.roots(found.Info); err != nil {
		return nil, err
	}
	verify := x509.VerifyOptions{DNSName: server.Hostname(), Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: found.Verified}
	for _, cert := range connection.PeerCertificates[1:] {
		verify.Intermediates.AddCert(cert)
	}
	if _, err := connection.PeerCertificates[0].Verify(verify); err != nil {
		return nil, &Error{Check: CheckLockout, Got: "CAs that do not verify the server at " + server.Host, Err: err}
	}
	return found, nil
}

func (opts *RefreshOptions) kubeconfig(data map[string]string) (string, error) {
	if opts.Token.IsZero() {
		return kubeconfigOf(data)
	}
	return awaitedKubeconfig(data, opts.Token)
}
