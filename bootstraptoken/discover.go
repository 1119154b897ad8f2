package bootstraptoken

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// The reasons why discovery refuses, in addition to the checks of signatures and of [Network].
const (
	// CheckPinned: none of the cluster's CAs has a pin.
	CheckPinned Check = "ca-pinned"
	// checkAgreement: the kubeconfig that the verified server sends is not the one that
	// was signed.
	checkAgreement Check = "cluster-info-agreement"
)

// clusterInfoPath is where an API server serves the ConfigMap.
const clusterInfoPath = "/api/v1/namespaces/" + ClusterInfoNamespace + "/configmaps/" + ClusterInfoName

// DiscoverConfig says which cluster to look for and where.
type DiscoverConfig struct {
	// Token proves that the cluster's discovery document is genuine. Its secret is
	// never sent.
	Token Token
	// Addresses are API servers, 1 to 64, as host, host:port or URL
	// (https://host[:port][/path]); without a port, 443 is meant. They are tried in this order,
	// round after round, until one leads to the cluster.
	Addresses []string
	// Pins are the pins of the cluster's CAs, at least one. Only CAs with a pin, and CAs that
	// verify up to one, are trusted.
	Pins []Pin
	// InsecureSkipCAPins trusts the CAs in the signed document without pins. Anyone who has the
	// token, including every node that ever joined with it, can then impersonate the cluster.
	// Pins must be empty.
	InsecureSkipCAPins bool
	// Network says how servers are reached.
	Network Network
}

// Discovered is a cluster that was found, and how.
type Discovered struct {
	// Info is what to trust. After [Discover] with pins, Info.CAs are only the pinned CAs
	// and the CAs below them, and Info.Marshal writes a kubeconfig with no others.
	Info *ClusterInfo
	// Kubeconfig is the document as it was published, byte for byte. It may name CAs that must
	// not be trusted.
	Kubeconfig []byte
	// Unpinned are the CAs of the document for which no pin stands.
	Unpinned []*x509.Certificate
	// Address is the URL of the server that served it, without its query; empty for files and
	// readers.
	Address string
	// Verified is when a server whose certificate was verified confirmed it; zero for files and
	// readers.
	Verified time.Time

	constrained string // a CA among Unpinned that a pinned one vouches for only within constraints
}

// Discover finds a cluster by a bootstrap token (Kubernetes bootstrap discovery,
// "Method: Bootstrap Token"; cmd/kubeadm/app/discovery/token/token.go). At each address
// it
//
//  1. reads the cluster-info ConfigMap over TLS without verifying the server, anonymously: no
//     credential is sent;
//  2. waits until there is a signature by the token, and verifies it over the bytes of the
//     kubeconfig, which is then read with all the checks of [ParseKubeconfig];
//  3. keeps only the CAs that have a pin, and the CAs of the bundle that verify up to one
//     of them now, as the CA below a pinned root does. Such a CA is not kept if one above it has
//     name constraints, which its certificates would escape: it needs a pin of its own.
//     kubeadm wants one CA of the bundle to have a pin, and then trusts the whole bundle,
//     CAs without a pin included;
//  4. reads the ConfigMap again over TLS verified only by those CAs: signature and kubeconfig
//     must be the same. kubeadm does so only if there are pins, and does not look at the
//     second signature.
//
// Until a server has been verified by the pinned CAs, the answer may have come from any host on
// the network path. So no such answer ends the search: after a redirect, a different
// certificate, a wrong signature, CAs of which none has a pin or a text that is not a ConfigMap,
// the server is tried again until time is up, as is one that cannot be reached, forbids
// anonymous reads or has no signature yet. Redirects are not followed. Only the answer of the
// verified server is refused at once.
//
// The last problem at each address is in the error, a [*DiscoverError]: [CheckPinned],
// "cluster-info-agreement", "no-ca", "cluster-info-object", "cluster-info-kubeconfig",
// "cluster-info-no-signature", [CheckSignature], and the checks of [ParseKubeconfig] and of the
// network. An incomplete config fails with [refusal.CheckConfig] or, for the token, pins and
// addresses, with their own checks.
func Discover(ctx context.Context, config DiscoverConfig) (*Discovered, error) {
	switch {
	case config.Token.IsZero():
		return nil, &Error{Check: checkToken, Got: config.Token.String(), Want: wantToken}
	case len(config.Pins) == 0 && !config.InsecureSkipCAPins:
		return nil, refusal.Config("Pins", "", "the pin of a CA")
	case len(config.Pins) > 0 && config.InsecureSkipCAPins:
		return nil, refusal.Config("Pins", "and InsecureSkipCAPins", "one of them")
	}
	if err := checkPins(config.Pins); err != nil {
		return nil, err
	}
	servers, err := parseAddresses(config.Addresses)
	if err != nil {
		return nil, err
	}
	return config.Network.rounds(ctx, servers, config.at)
}

func checkPins(pins []Pin) error {
	if slices.Contains(pins, Pin{}) {
		return &Error{Check: checkPin, Got: "the zero Pin", Want: wantPin}
	}
	return nil
}

func parseAddresses(addresses []string) ([]*url.URL, error) {
	if len(addresses) == 0 || len(addresses) > maxAddresses {
		return nil, refusal.Config("Addresses", strconv.Itoa(len(addresses)), "1 to "+strconv.Itoa(maxAddresses))
	}
	var servers []*url.URL
	for _, a := range addresses {
		server, err := parseAddress(a)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(servers, func(other *url.URL) bool { return sameServer(server, other) }) {
			servers = append(servers, server)
		}
	}
	return servers, nil
}

// at is discovery at one server.
func (config *DiscoverConfig) at(ctx context.Context, server *url.URL) (*Discovered, error) {
	data, _, err := config.Network.clusterInfo(ctx, server, config.Network.insecureTLS())
	if err != nil {
		return nil, unverified(err)
	}
	kubeconfig, err := signedKubeconfig(data, config.Token)
	if err != nil {
		return nil, unverified(err)
	}
	found, err := discovered([]byte(kubeconfig), server.String(), config.Pins, false, config.Network.now())
	if err != nil { // it may be one that the token signed under other CAs, and an attacker kept
		return nil, unverified(err)
	}
	second, _, err := config.Network.clusterInfo(ctx, server, config.Network.verifiedTLS(poolOf(found.Info.CAs)))
	if errors.Is(err, CheckCertificate) {
		if found.constrained != "" {
			err = &Error{Check: CheckCertificate, Got: found.constrained, Want: "a pin of its own", Err: err}
		}
		return nil, unverified(err)
	}
	if err != nil {
		return nil, err
	}
	again, err := awaitedKubeconfig(second, config.Token)
	if err != nil {
		return nil, err
	}
	if again != kubeconfig { // the first may be an old one that an attacker kept
		return nil, unverified(&Error{Check: checkAgreement, Got: "another kubeconfig from the verified server", Want: "the one that was read first"})
	}
	found.Verified = config.Network.now()
	return found, nil
}

// unverified turns the refusal of data that any host on the network path may have sent into
// refusal.ErrRetry. A refusal of the caller's own configuration stays one.
func unverified(err error) error {
	if errors.Is(err, refusal.ErrRetry) || errors.Is(err, refusal.CheckConfig) {
		return err
	}
	return refusal.Retry(err)
}

// awaitedKubeconfig is signedKubeconfig, except that a missing kubeconfig or signature is
// refusal.ErrRetry: it may still appear.
func awaitedKubeconfig(data map[string]string, token Token) (string, error) {
	kubeconfig, err := signedKubeconfig(data, token)
	if errors.Is(err, checkNoKubeconfig) || errors.Is(err, checkNoSignature) {
		return "", refusal.Retry(err)
	}
	return kubeconfig, err
}

// discovered reads the kubeconfig that was found at an address. With pins, it keeps the pinned
// CAs and the CAs that verify up to them at now; without pins, all. A kubeconfig without CAs is
// refused unless systemRoots is set.
func discovered(kubeconfig []byte, address string, pins []Pin, systemRoots bool, now time.Time) (*Discovered, error) {
	info, err := ParseKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	if info.SystemRoots && !systemRoots {
		return nil, &Error{Check: checkNoCA, Got: "a kubeconfig without CAs", Want: "CAs"}
	}
	found := &Discovered{Info: info, Kubeconfig: kubeconfig, Address: address}
	if len(pins) == 0 {
		return found, nil
	}
	found.Info = &ClusterInfo{Server: info.Server}
	pinned := slices.DeleteFunc(slices.Clone(info.CAs), func(ca *x509.Certificate) bool { return !slices.Contains(pins, pinOf(ca)) })
	for _, ca := range info.CAs {
		ok, constrained := vouched(ca, pinned, info.CAs, now)
		if ok {
			found.Info.CAs = append(found.Info.CAs, ca)
		} else {
			found.Unpinned = append(found.Unpinned, ca)
			found.constrained = cmp.Or(found.constrained, constrained)
		}
	}
	if len(found.Info.CAs) == 0 {
		return nil, &Error{Check: CheckPinned, Got: fmt.Sprint(info.Pins()), Want: fmt.Sprint("one of ", pins)}
	}
	return found, nil
}

// AddressError says why one address did not lead to the cluster.
type AddressError struct {
	// Address is the server's URL, without its query.
	Address string
	// Err is the last error there. It matches the check that failed last, and
	// [refusal.ErrRetry] too unless the address was refused.
	Err error
}

// DiscoverError says why discovery failed, address by address in the order in which they were
// given. errors.Is looks into each, and finds [refusal.ErrRetry] unless every address was
// refused: if one was not, the answer may still be found there.
type DiscoverError struct {
	// Addresses lists the addresses that were tried, each once.
	Addresses []AddressError
	// Err is the context's error if time was up; nil if every address refused.
	Err error
}

// Error gives each address with its error, and says if time was up.
func (e *DiscoverError) Error() string {
	parts := []string{"bootstraptoken: no address led to the cluster"}
	for _, a := range e.Addresses {
		parts = append(parts, refusal.Text(a.Address)+": "+a.Err.Error())
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, "; ")
}

// Unwrap lets errors.Is find the last error of each address.
func (e *DiscoverError) Unwrap() []error {
	var errs []error
	if e.Err != nil {
		errs = append(errs, refusal.ErrRetry, e.Err)
	}
	for _, a := range e.Addresses {
		errs = append(errs, a.Err)
	}
	return errs
}

// rounds tries one server after another until a try finds the cluster. Servers whose error is
// a refusal are not tried again; when no server or no time is left, the error is a
// *DiscoverError.
func (n *Network) rounds(ctx context.Context, servers []*url.URL, try func(context.Context, *url.URL) (*Discovered, error)) (*Discovered, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(n.Timeout, defaultTimeout))
	defer cancel()
	failed := new(DiscoverError)
	for _, server := range servers {
		failed.Addresses = append(failed.Addresses, AddressError{Address: withoutQuery(server)})
	}
	longest := cmp.Or(n.MaxBackoff, defaultMaxBackoff)
	for wait := cmp.Or(n.MinBackoff, defaultMinBackoff); ; wait = min(2*wait, longest) {
		undecided := false
		for i, server := range servers {
			last := &failed.Addresses[i].Err
			if *last != nil && !errors.Is(*last, refusal.ErrRetry) {
				continue
			}
			found, err := try(ctx, server)
			if err == nil {
				return found, nil
			}
			if *last == nil || ctx.Err() == nil {
				*last = err // but not that time was up, if there is something better
			}
			undecided = undecided || errors.Is(*last, refusal.ErrRetry)
		}
		if !undecided {
			return nil, failed
		}
		select {
		case <-ctx.Done():
			failed.Err = ctx.Err()
			return nil, failed
		case <-time.After(wait + rand.N(wait/5+1)):
		}
	}
}

const maxRedirects = 5

// DiscoverReader reads a discovery document to its end, from a file or standard input
// (Kubernetes bootstrap discovery, "Method: Out of Band"). Anyone who can write the file
// decides which cluster is trusted. [Refresh] asks the cluster for its latest document, as
// kubeadm does. Its errors are from [ParseKubeconfig] and r. At most one byte more than
// 262,144 is read.
func DiscoverReader(r io.Reader) (*Discovered, error) {
	if r == nil {
		return nil, refusal.Config("Reader", "", "one")
	}
	kubeconfig, err := io.ReadAll(io.LimitReader(r, maxKubeconfigSize+1))
	if err != nil {
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	return discovered(kubeconfig, "", nil, true, time.Time{})
}

// DiscoverURL reads a discovery document from an https server whose certificate chains to
// network.SystemRoots or, if that is nil, to the roots that the system trusts (Kubernetes
// bootstrap discovery, "Method: HTTPS Endpoint"). Redirects to other https URLs are followed,
// at most five of them. No credential is sent: a URL with a user is refused. The URL's query,
// which may be a secret, appears in no error, even if a server repeats it.
//
// Its errors are from [ParseKubeconfig] and the network, in a [*DiscoverError];
// "server-url", "server-url-scheme" and "kubeconfig-credentials" if the URL is refused.
func DiscoverURL(ctx context.Context, address string, network Network) (*Discovered, error) {
	u, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	roots, err := network.roots(&ClusterInfo{SystemRoots: true})
	if err != nil {
		return nil, err
	}
	return network.rounds(ctx, []*url.URL{u}, func(ctx context.Context, u *url.URL) (*Discovered, error) {
		body, reply, err := network.get(ctx, &request{url: u, tls: network.verifiedTLS(roots), maxSize: maxKubeconfigSize, redirect: httpsRedirect})
		if err != nil {
			return nil, err
		}
		found, err := discovered(body, withoutQuery(reply.Request.URL), nil, true, time.Time{})
		if err == nil {
			found.Verified = network.now()
		}
		return found, err
	})
}

func httpsRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &Error{Check: checkRedirect, Got: strconv.Itoa(len(via)) + " redirects", Want: "at most " + strconv.Itoa(maxRedirects)}
	}
	if checkURL(req.URL) != nil { // whose text may repeat the query
		return &Error{Check: checkRedirect, Got: "a redirect to a URL that is refused", Want: wantServer}
	}
	req.Header.Del("Referer") // the query of the previous URL
	return nil
}
