package bootstraptoken

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/safefile"
)

const cacheVersion = 1

// Cache is the trust in a cluster that a client stores (Kubernetes bootstrap discovery, "Client
// caching and update"). [Cache.Refresh] makes the next one; [Cache.WriteFile] and
// [ReadCacheFile] keep it between runs. Callers with their own storage use [Cache.Marshal] and
// [ParseCache]. It contains no secret, but anyone who can change it decides which cluster is
// trusted.
type Cache struct {
	// Info is the cluster.
	Info *ClusterInfo
	// Addresses are other API servers, at most 63, to be tried if
	// Info.Server does not answer.
	Addresses []string
	// Verified is when a verified server last confirmed this, to the second; zero if never.
	Verified time.Time
}

// cacheFile is the JSON of a Cache.
type cacheFile struct {
	Version    int      `json:"version"`
	Kubeconfig string   `json:"kubeconfig"`
	Addresses  []string `json:"addresses,omitempty"`
	Verified   string   `json:"verified,omitempty"`
}

// Marshal writes the cache as one line of JSON: version 1, the kubeconfig with the trusted CAs
// as [ClusterInfo.Marshal] writes it, the addresses, and the time in RFC 3339, UTC. Its errors
// are from [ClusterInfo.Marshal] and, for addresses, from [Discover].
func (c *Cache) Marshal() ([]byte, error) {
	c = cmp.Or(c, new(Cache))
	kubeconfig, err := c.Info.Marshal()
	if err != nil {
		return nil, err
	}
	if len(c.Addresses) > 0 {
		if _, err := parseAddresses(append([]string{c.Info.Server}, c.Addresses...)); err != nil {
			return nil, err
		}
	}
	f := cacheFile{Version: cacheVersion, Kubeconfig: string(kubeconfig), Addresses: c.Addresses}
	if !c.Verified.IsZero() {
		f.Verified = c.Verified.UTC().Format(time.RFC3339)
	}
	b, _ := json.Marshal(f) // strings cannot fail, and their limits keep it under 524,288
	return append(b, '\n'), nil
}

// ParseCache reads exactly what [Cache.Marshal] writes, to the byte, and nothing else. The
// error is "cache".
func ParseCache(data []byte) (*Cache, error) {
	if len(data) > maxCacheSize {
		return nil, &Error{Check: checkCache, Got: strconv.Itoa(len(data)) + " bytes", Want: "at most " + strconv.Itoa(maxCacheSize)}
	}
	var f cacheFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, &Error{Check: checkCache, Err: err}
	}
	if f.Version != cacheVersion {
		return nil, &Error{Check: checkCache, Got: "version " + strconv.Itoa(f.Version), Want: "version " + strconv.Itoa(cacheVersion)}
	}
	info, err := ParseKubeconfig([]byte(f.Kubeconfig))
	if err != nil {
		return nil, &Error{Check: checkCache, Err: err}
	}
	c := &Cache{Info: info, Addresses: f.Addresses}
	if f.Verified != "" {
		if c.Verified, err = time.Parse(time.RFC3339, f.Verified); err != nil {
			return nil, &Error{Check: checkCache, Got: "another form of the time", Want: "RFC 3339"}
		}
	}
	again, err := c.Marshal()
	if err != nil {
		return nil, &Error{Check: checkCache, Err: err}
	}
	if !bytes.Equal(again, data) {
		return nil, &Error{Check: checkCache, Got: "another spelling", Want: "the one that Marshal writes"}
	}
	return c, nil
}

// Refresh calls [Refresh] for the cached cluster; the cache's addresses are tried before the
// addresses of opts. It returns the cache to use and store from now on, and leaves c unchanged;
// changed reports whether the cluster itself, its server or its CAs, is different. After an
// error that matches [refusal.ErrRetry], c is still the best there is. After [CheckCertificate],
// either the cluster's CA has changed in the meantime or the server is not the cluster:
// discover it again.
func (c *Cache) Refresh(ctx context.Context, opts RefreshOptions) (next *Cache, changed bool, err error) {
	c = cmp.Or(c, new(Cache))
	opts.Addresses = slices.Concat(c.Addresses, opts.Addresses)
	found, err := Refresh(ctx, c.Info, opts)
	if err != nil {
		return nil, false, err
	}
	next = &Cache{Info: found.Info, Addresses: c.Addresses, Verified: found.Verified.UTC().Truncate(time.Second)}
	return next, !found.Info.Equal(c.Info), nil
}

// WriteFile stores the cache in a file of mode 0600, replacing the one that was there: a
// reader, even after a loss of power, finds either the old file or the new one, whole. The
// directory must exist. Its errors are from [Cache.Marshal] and the file system.
func (c *Cache) WriteFile(path string) error {
	data, err := c.Marshal()
	if err != nil {
		return err
	}
	if err := safefile.Replace(path, safefile.Content(data)); err != nil {
		return fmt.Errorf("bootstraptoken: %w", err)
	}
	return nil
}

// ReadCacheFile reads a file that [Cache.WriteFile] wrote. On Unix the file must belong to
// this user or to root, and no other user may be able to write it; it must not be a symbolic
// link. The error is "cache", or the file system's, in which errors.Is finds
// [io/fs.ErrNotExist].
func ReadCacheFile(path string) (*Cache, error) {
	data, err := safefile.Read(path, maxCacheSize, safefile.Trusted)
	switch {
	case errors.Is(err, safefile.CheckFile):
		return nil, &Error{Check: checkCache, Err: err}
	case err != nil:
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	return ParseCache(data)
}

// RefreshOptions say how a cluster is asked for its latest discovery document. The zero value
// of each field is a sensible default.
type RefreshOptions struct {
	// Addresses are other API servers, as in [DiscoverConfig], in case the cluster's
	// own server does not lead to it. They are tried after that one.
	Addresses []string
	// Pins, if there are any, keep other CAs from being trusted, as in [Discover]. None means
	// that all CAs that the verified server names are trusted from now on.
	Pins []Pin
	// Token, if it is not the zero Token, must have signed the document. Bootstrap tokens
	// usually do not live long enough for that.
	Token Token
	// Network says how servers are reached.
	Network Network
}

// Refresh asks a known cluster for its latest discovery document (Kubernetes bootstrap
// discovery, "Client caching and update"): the cluster-info ConfigMap, over TLS verified by
// info. The result replaces info.
//
// This is how a client survives a rotation of the CA: while both CAs are in the published
// bundle, a client that knows the old one learns the new one. One that slept through all that
// time gets [CheckCertificate] and must discover the cluster again. Pins are for the first
// contact: after that the cluster, having proved its identity, names its CAs itself, including
// those for which [Discover] had no pin. Set Pins here to keep those out.
//
// A cluster that is identified by its CAs must continue to name some ("no-ca"): the
// system's roots are no replacement. The refreshed CAs must also verify the server that sent
// them ("ca-lockout"), or the client could not find its way back.
//
// Other errors are as for [Discover]. A server that forbids anonymous clients to read its document
// is refused at once ("forbidden"); kubeadm then continues with the document it has.
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
	if retry := (*Error)(nil); errors.Is(err, checkForbidden) && errors.As(err, &retry) { // by the cluster itself: waiting changes nothing
		return nil, retry.Err
	}
	if err != nil {
		return nil, err
	}
	kubeconfig, err := opts.kubeconfig(data)
	if err != nil {
		return nil, err
	}
	found, err := discovered([]byte(kubeconfig), server.String(), opts.Pins, old.SystemRoots, opts.Network.now())
	if err != nil {
		return nil, err
	}
	found.Verified = opts.Network.now()
	if roots, err = opts.Network.roots(found.Info); err != nil {
		return nil, err
	}
	sent := connection.PeerCertificates
	verify := x509.VerifyOptions{DNSName: server.Hostname(), Roots: roots, Intermediates: poolOf(sent[1:]), CurrentTime: found.Verified}
	if _, err := sent[0].Verify(verify); err != nil {
		return nil, &Error{Check: checkLockout, Got: cmp.Or(found.constrained, "CAs that do not verify the server at "+server.Host), Err: err}
	}
	return found, nil
}

func (opts *RefreshOptions) kubeconfig(data map[string]string) (string, error) {
	if opts.Token.IsZero() {
		return kubeconfigOf(data)
	}
	return awaitedKubeconfig(data, opts.Token)
}
