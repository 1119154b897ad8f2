package bootstraptoken

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	maxRedirects = 5
	wantDocument = "https://host[:port]/path"
)

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
	info, err := ParseKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Discovered{Info: info, Kubeconfig: kubeconfig}, nil
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
	u, err := documentURL(address)
	if err != nil {
		return nil, err
	}
	roots, err := network.systemRoots()
	if err != nil {
		return nil, err
	}
	return network.rounds(ctx, []*url.URL{u}, func(ctx context.Context, u *url.URL) (*Discovered, error) {
		reply, err := network.get(ctx, &request{url: u, tls: network.verifiedTLS(roots), maxSize: MaxKubeconfigSize, redirect: httpsRedirect})
		if err != nil {
			return nil, err
		}
		info, err := ParseKubeconfig(reply.body)
		if err != nil {
			return nil, err
		}
		return &Discovered{Info: info, Kubeconfig: reply.body, Address: withoutQuery(reply.url), Verified: network.now()}, nil
	})
}

func documentURL(address string) (*url.URL, error) {
	if len(address) > MaxServerSize {
		return nil, &Error{Check: CheckServer, Got: strconv.Itoa(len(address)) + " bytes", Want: wantDocument}
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, &Error{Check: CheckServer, Got: "a text that is no URL", Want: wantDocument}
	}
	return u, checkDocumentURL(u)
}

func checkDocumentURL(u *url.URL) error {
	switch {
	case u.User != nil:
		return &Error{Check: CheckCredentials, Got: "a URL with a user", Want: "none"}
	case u.Scheme != "https":
		return &Error{Check: CheckServerScheme, Got: refusal.Quote(u.Scheme), Want: "https"}
	case !isHost(u.Hostname()):
		return &Error{Check: CheckServer, Got: "the host " + refusal.Quote(u.Host), Want: "a DNS name or an IP address"}
	}
	return nil
}

func httpsRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &Error{Check: CheckRedirect, Got: strconv.Itoa(len(via)) + " redirects", Want: "at most " + strconv.Itoa(maxRedirects)}
	}
	if checkDocumentURL(req.URL) != nil { // whose text may repeat the query
		return &Error{Check: CheckRedirect, Got: "a redirect to a URL that is refused", Want: wantDocument}
	}
	req.Header.Del("Referer") // the query of the URL before
	return nil
}
