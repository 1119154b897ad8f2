package clusterinfo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// attempts is the number of connections to each address of a server.
	attempts = 3
	// maxAddresses is the number of addresses of one name.
	maxAddresses = 16
	// dialTimeout limits a connection with its handshake, and a look-up of a name.
	dialTimeout = 5 * time.Second
	// serversTimeout limits all connections together.
	serversTimeout = time.Minute
)

// A CutOffError refuses a document that drops a CA under which a server still serves.
type CutOffError struct {
	// Server is the server's URL, and CA the CA that it serves under.
	Server string
	CA     *x509.Certificate
}

// Error names the server and the CA.
func (e *CutOffError) Error() string {
	pin := (&bootstraptoken.ClusterInfo{CAs: []*x509.Certificate{e.CA}}).Pins()[0]
	return fmt.Sprintf("server %s still serves under the CA %s (%s), which the new document leaves out: "+
		"publish both CAs until each API server has a certificate of the new one", e.Server, refusal.Text(e.CA.Subject.String()), pin)
}

// checkServers refuses a document by whose CAs its own server does not verify, and one that drops a CA
// under which the previous document's server or one of opts.Servers still serves.
func checkServers(ctx context.Context, previous, next *bootstraptoken.ClusterInfo, opts Options) error {
	ctx, cancel := context.WithTimeout(ctx, serversTimeout)
	defer cancel()
	servers := []string{next.Server}
	if previous != nil && drops(previous, next) {
		servers = append(append(servers, previous.Server), opts.Servers...)
	}
	for i, server := range servers {
		if slices.Contains(servers[:i], server) {
			continue
		}
		if err := checkServer(ctx, server, previous, next, opts); err != nil {
			return err
		}
	}
	return nil
}

// drops reports whether the next document lacks a CA of the previous one.
func drops(previous, next *bootstraptoken.ClusterInfo) bool {
	return previous.SystemRoots || slices.ContainsFunc(previous.CAs, func(ca *x509.Certificate) bool { return !slices.ContainsFunc(next.CAs, ca.Equal) })
}

// checkServer tries every address of a server.
func checkServer(ctx context.Context, server string, previous, next *bootstraptoken.ClusterInfo, opts Options) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	addresses, err := lookUp(ctx, u.Hostname())
	if err != nil {
		return undecided(server, err)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	for _, address := range addresses {
		for range attempts {
			untrusted, err := handshake(ctx, net.JoinHostPort(address.String(), port), u.Hostname(), next, opts)
			switch {
			case err != nil:
				return undecided(server, err)
			case untrusted == nil:
				continue
			}
			served, now := untrusted.UnverifiedCertificates, opts.Now()
			if ca := issuerOf(previous, served, now); ca != nil && issuerOf(next, served, now) == nil {
				return &CutOffError{Server: server, CA: ca}
			}
			if server == next.Server {
				return &bootstraptoken.Error{Check: bootstraptoken.CheckCertificate, Got: "at " + server + " a certificate that does not verify by the new document's CAs",
					Want: "the CAs of this server", Err: untrusted.Err}
			}
		}
	}
	return nil
}

func undecided(server string, err error) error {
	return refusal.Retry(fmt.Errorf("server %s could not be reached, so whether it serves under the CAs of the new document is not decided, and nothing was written: %w", server, withoutSource(err)))
}

// withoutSource takes the port of this process from an error. It is another one each time, and the same
// error is logged once.
func withoutSource(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		without := *e
		without.Source = nil
		return &without
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && !e.IsNotFound {
		without := *e
		without.Err = "no answer" // of the name server, by a connection whose port it had
		return &without
	}
	return err
}

// lookUp returns the addresses of a host.
func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addresses) > maxAddresses {
		err = fmt.Errorf("%d addresses, want at most %d", len(addresses), maxAddresses)
	}
	return addresses, err
}

// handshake connects to a server, and returns why its certificate does not verify by the CAs of info, nil
// if it does.
func handshake(ctx context.Context, address, host string, info *bootstraptoken.ClusterInfo, opts Options) (*tls.CertificateVerificationError, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	roots, err := info.Roots()
	if err != nil {
		return nil, err
	}
	dial := opts.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	err = tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host, Time: opts.Now}).HandshakeContext(ctx)
	if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
		return untrusted, nil
	}
	return nil, err
}

// issuerOf returns the CA of info under which a server serves, nil if it serves under none. Which names the
// certificate has is not asked, since those behind a load balancer may lack their own, nor whether it has
// ended: its successor is of the same CA.
func issuerOf(info *bootstraptoken.ClusterInfo, served []*x509.Certificate, now time.Time) *x509.Certificate {
	if info == nil || len(served) == 0 {
		return nil
	}
	roots, err := info.Roots()
	if err != nil {
		return nil
	}
	between := x509.NewCertPool()
	for _, cert := range served[1:] {
		between.AddCert(cert)
	}
	at := now
	if end := served[0].NotAfter; at.After(end) {
		at = end
	}
	chains, err := served[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at})
	if err != nil {
		return nil
	}
	for _, chain := range chains {
		if ca := chain[len(chain)-1]; !now.After(ca.NotAfter) { // else it verifies nothing any more
			return ca
		}
	}
	return nil
}
