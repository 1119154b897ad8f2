package bootstraptoken

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
)

const maxRedirects = 5

// DiscoverFile reads a discovery document from a file that somebody brought to this
// machine (Kubernetes bootstrap discovery, "Method: Out of Band"). Who may write the file
// decides which cluster is trusted. [Refresh] asks the cluster for its latest one, as
// kubeadm does.
//
// The errors are those of [ParseKubeconfig], and those of the file system, in which
// errors.Is finds [io/fs.ErrNotExist].
func DiscoverFile(path string) (*Discovered, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	defer func() { _ = f.Close() }()
	return DiscoverReader(f)
}

// DiscoverReader reads a discovery document to its end, from standard input for example.
// The errors are those of [ParseKubeconfig] and of r. No more than [MaxKubeconfigSize]
// bytes and one are read.
func DiscoverReader(r io.Reader) (*Discovered, error) {
	kubeconfig, err := io.ReadAll(io.LimitReader(r, MaxKubeconfigSize+1))
	if err != nil {
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	return discovered(kubeconfig, "", nil, true)
}

// DiscoverURL reads a discovery document from an https server whose certificate chains to
// network.SystemRoots or, where those are nil, to the roots that the system trusts
// (Kubernetes bootstrap discovery, "Method: HTTPS Endpoint"). Redirects are followed to
// other https URLs, five of them at most. No credential is sent: a URL with a user is
// refused. Its query, which may be a secret, is in no error, also where a server repeats it.
//
// Errors are those of [ParseKubeconfig] and of the network, in a [*DiscoverError];
// [CheckServer], [CheckServerScheme] and [CheckCredentials] where the URL is refused.
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
		body, reply, err := network.get(ctx, &request{url: u, tls: network.verifiedTLS(roots), maxSize: MaxKubeconfigSize, redirect: httpsRedirect})
		if err != nil {
			return nil, err
		}
		found, err := discovered(body, withoutQuery(reply.Request.URL), nil, true)
		if err == nil {
			found.Verified = network.now()
		}
		return found, err
	})
}

func httpsRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &Error{Check: CheckRedirect, Got: strconv.Itoa(len(via)) + " redirects", Want: "at most " + strconv.Itoa(maxRedirects)}
	}
	if checkURL(req.URL) != nil { // whose text may repeat the query
		return &Error{Check: CheckRedirect, Got: "a redirect to a URL that is refused", Want: wantServer}
	}
	req.Header.Del("Referer") // the query of the URL before
	return nil
}
