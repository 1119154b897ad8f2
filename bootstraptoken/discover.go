package bootstraptoken

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// MaxAddresses is how many API servers can be tried.
const MaxAddresses = 64

// The reasons for which discovery refuses, beside those of [Verify] and [Network].
const (
	// CheckOptions: what discovery was asked to do is incomplete or contradicts itself.
	CheckOptions Check = "discovery-options"
	// CheckPinned: none of the cluster's CAs has a pin.
	CheckPinned Check = "ca-pinned"
	// CheckAgreement: the kubeconfig that the verified server sends is not the one that
	// was signed.
	CheckAgreement Check = "cluster-info-agreement"
)

// clusterInfoPath is where an API server has the ConfigMap.
const clusterInfoPath = "/api/v1/namespaces/" + ClusterInfoNamespace + "/configmaps/" + ClusterInfoName

// DiscoverConfig says which cluster to look for and where.
type DiscoverConfig struct {
	// Token proves that the cluster's discovery document is genuine. Its secret is
	// never sent.
	Token Token
	// Addresses are those of API servers, 1 to [MaxAddresses], as host, host:port or
	// URL (https://host[:port][/path]); without a port 443 is meant. They are tried in
	// this order, round after round, until one leads to the cluster.
	Addresses []string
	// Pins are those of the cluster's CAs, at least one. Only CAs with a pin are
	// trusted.
	Pins []Pin
	// InsecureSkipCAPins trusts the CAs that the signed document has, without pins.
	// Whoever has the token, every node that ever joined with it among them, can then
	// pass for the cluster. Pins must be empty.
	InsecureSkipCAPins bool
	// Network says how servers are reached.
	Network Network
}

// Discovered is a cluster that was found, and by what.
type Discovered struct {
	// Info is what to trust. After [Discover] with pins, Info.CAs are the pinned ones
	// alone, and Info.Marshal writes a kubeconfig with no others.
	Info *ClusterInfo
	// Kubeconfig is the document as it was published, byte for byte. It may name CAs
	// that are not to be trusted.
	Kubeconfig []byte
	// Unpinned are the CAs of the document that no pin was given for.
	Unpinned []*x509.Certificate
	// Address is the URL of the server that had it, without its query; empty for files
	// and readers.
	Address string
	// Verified is when a server whose certificate was verified said so; zero for files
	// and readers.
	Verified time.Time
}

// Discover finds a cluster by a bootstrap token (Kubernetes bootstrap discovery,
// "Method: Bootstrap Token"; cmd/kubeadm/app/discovery/token/token.go). At each address
// it
//
//  1. reads the cluster-info ConfigMap over TLS without verifying the server, as nobody:
//     no credential is sent;
//  2. waits until there is a signature by the token, and verifies it over the bytes of
//     the kubeconfig, which is then read with all that [ParseKubeconfig] refuses;
//  3. keeps those CAs that have a pin. kubeadm wants one CA of the bundle to have one,
//     and then trusts the whole bundle, others' CAs in it too;
//  4. reads the ConfigMap again over TLS verified by those CAs alone: signature and
//     kubeconfig must be the same. kubeadm does so only if there are pins, and does not
//     look at the second signature.
//
// Until a signature verifies, and a server by the CAs that were signed, anybody on the way
// may have answered. So no answer ends the search: a redirect, another certificate, a wrong
// signature or a text that is no ConfigMap is tried again until time is up, as a server is
// that is not reached, does not let anybody read or has no signature yet. Redirects are not
// followed. What only a holder of the token can have signed, or the verified server have
// sent, is refused at once.
//
// The last that was wrong at each address is in the error, a [*DiscoverError]:
// [CheckPinned], [CheckAgreement], [CheckNoCA], the checks of [Verify], [ParseConfigMap] and
// the network. An incomplete cfg is [CheckOptions] or, for the token, pins and addresses,
// their own checks.
func Discover(ctx context.Context, cfg DiscoverConfig) (*Discovered, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	servers, err := parseAddresses(cfg.Addresses)
	if err != nil {
		return nil, err
	}
	var found *Discovered
	err = cfg.Network.rounds(ctx, servers, func(ctx context.Context, server *url.URL) (err error) {
		found, err = cfg.at(ctx, server)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (cfg *DiscoverConfig) check() error {
	switch {
	case cfg.Token.IsZero():
		return &Error{Check: CheckToken, Got: cfg.Token.String(), Want: wantToken}
	case len(cfg.Pins) == 0 && !cfg.InsecureSkipCAPins:
		return &Error{Check: CheckOptions, Got: "no pins", Want: "the pin of a CA"}
	case len(cfg.Pins) > 0 && cfg.InsecureSkipCAPins:
		return &Error{Check: CheckOptions, Got: "pins and InsecureSkipCAPins", Want: "one of them"}
	}
	return checkPins(cfg.Pins)
}

func checkPins(pins []Pin) error {
	if slices.Contains(pins, Pin{}) {
		return &Error{Check: CheckPin, Got: "the zero Pin", Want: wantPin}
	}
	return nil
}

func parseAddresses(addresses []string) ([]*url.URL, error) {
	if len(addresses) == 0 || len(addresses) > MaxAddresses {
		return nil, &Error{Check: CheckOptions, Got: strconv.Itoa(len(addresses)) + " addresses", Want: "1 to " + strconv.Itoa(MaxAddresses)}
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
func (cfg *DiscoverConfig) at(ctx context.Context, server *url.URL) (*Discovered, error) {
	data, err := cfg.Network.insecureClusterInfo(ctx, server)
	if err != nil {
		return nil, fromAnybody(err)
	}
	kubeconfig, err := signedKubeconfig(data, cfg.Token)
	if err != nil {
		return nil, fromAnybody(err)
	}
	info, err := ParseKubeconfig([]byte(kubeconfig))
	if err != nil {
		return nil, err
	}
	if info.SystemRoots {
		return nil, &Error{Check: CheckNoCA, Got: "a kubeconfig without CAs", Want: "CAs"}
	}
	found := &Discovered{Kubeconfig: []byte(kubeconfig), Address: server.String()}
	if found.Info, found.Unpinned, err = pinned(info, cfg.Pins); err != nil {
		return nil, err
	}
	second, err := cfg.Network.clusterInfo(ctx, server, poolOf(found.Info.CAs))
	if errors.Is(err, CheckCertificate) {
		return nil, fromAnybody(err)
	}
	if err != nil {
		return nil, err
	}
	again, err := awaitedKubeconfig(second.data, cfg.Token)
	if err != nil {
		return nil, err
	}
	if again != kubeconfig { // the first may be an old one, which somebody kept
		return nil, fromAnybody(&Error{Check: CheckAgreement, Got: "another kubeconfig from the verified server", Want: "the one that was read first"})
	}
	found.Verified = cfg.Network.now()
	return found, nil
}

// fromAnybody makes a question that is asked again of a refusal of what anybody on the way
// may have sent. What the caller asked for stays refused.
func fromAnybody(err error) error {
	if errors.Is(err, ErrRetry) || errors.Is(err, CheckOptions) {
		return err
	}
	return refusal.Retry(err)
}

// awaitedKubeconfig is signedKubeconfig, but that what is not there may still come.
func awaitedKubeconfig(data map[string]string, token Token) (string, error) {
	kubeconfig, err := signedKubeconfig(data, token)
	if errors.Is(err, CheckNoKubeconfig) || errors.Is(err, CheckNoSignature) {
		return "", refusal.Retry(err)
	}
	return kubeconfig, err
}

// pinned splits the CAs of info into those with a pin, which are kept in a copy of info,
// and the others. Without pins all are kept.
func pinned(info *ClusterInfo, pins []Pin) (*ClusterInfo, []*x509.Certificate, error) {
	if len(pins) == 0 {
		return info, nil, nil
	}
	kept := &ClusterInfo{Server: info.Server}
	var others []*x509.Certificate
	var got, want []string
	for _, ca := range info.CAs {
		pin := PinOf(ca)
		if slices.Contains(pins, pin) {
			kept.CAs = append(kept.CAs, ca)
			continue
		}
		others = append(others, ca)
		got = append(got, pin.String())
	}
	if len(kept.CAs) == 0 {
		for _, pin := range pins {
			want = append(want, pin.String())
		}
		return nil, nil, &Error{Check: CheckPinned, Got: strings.Join(got, " "), Want: strings.Join(want, " or ")}
	}
	return kept, others, nil
}
