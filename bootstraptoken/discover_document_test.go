package bootstraptoken_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestDiscoverReader(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	kubeconfig := cluster.Data()[bootstraptoken.KubeconfigKey]
	found, err := bootstraptoken.DiscoverReader(iotest.OneByteReader(strings.NewReader(kubeconfig)))
	if err != nil || !found.Info.Equal(cluster.Info()) || string(found.Kubeconfig) != kubeconfig || found.Address != "" || !found.Verified.IsZero() {
		t.Fatalf("%+v, %v", found, err)
	}
	// The document's CAs are enough for a verified refresh.
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	refreshed, err := bootstraptoken.Refresh(t.Context(), found.Info, bootstraptoken.RefreshOptions{})
	if err != nil || !refreshed.Info.Equal(cluster.Info()) {
		t.Errorf("%+v, %v", refreshed, err)
	}
	if _, err := bootstraptoken.DiscoverReader(iotest.TimeoutReader(strings.NewReader(kubeconfig))); err == nil && len(kubeconfig) > 512 {
		t.Error("a reader that failed was believed")
	}
	broken := errors.New("broken")
	if _, err := bootstraptoken.DiscoverReader(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
	endless := &countingReader{}
	if _, err := bootstraptoken.DiscoverReader(endless); !errors.Is(err, bootstraptoken.Check("kubeconfig")) {
		t.Errorf("%v, want %v", err, bootstraptoken.Check("kubeconfig"))
	}
	if endless.n > bootstraptoken.MaxKubeconfigSize+1 {
		t.Errorf("%d bytes were read", endless.n)
	}
	if _, err := bootstraptoken.DiscoverReader(strings.NewReader("")); !errors.Is(err, bootstraptoken.Check("kubeconfig")) {
		t.Errorf("nothing: %v", err)
	}
}

// countingReader never ends.
type countingReader struct{ n int }

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	r.n += len(p)
	return len(p), nil
}

// web is an https server for documents, and the network in which its certificate is
// known.
func web(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *bootstraptoken.Network) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server, &bootstraptoken.Network{SystemRoots: roots, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}
}

func TestDiscoverURL(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	kubeconfig := cluster.Data()[bootstraptoken.KubeconfigKey]
	server, network := web(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" || r.Header.Get("Referer") != "" {
			t.Errorf("headers %v", r.Header)
		}
		switch r.URL.Path {
		case "/moved":
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
			http.Redirect(w, r, "/cluster.yaml?signature=other", http.StatusFound)
		default:
			_, _ = io.WriteString(w, kubeconfig)
		}
	})
	for _, path := range []string{"/cluster.yaml", "/cluster.yaml?signature=secret", "/moved?signature=secret", ""} {
		found, err := bootstraptoken.DiscoverURL(t.Context(), server.URL+path, *network)
		if err != nil || !found.Info.Equal(cluster.Info()) || string(found.Kubeconfig) != kubeconfig || found.Verified.IsZero() {
			t.Fatalf("%s: %+v, %v", path, found, err)
		}
		want, _, _ := strings.Cut(server.URL+path, "?")
		if path == "/moved?signature=secret" {
			want = server.URL + "/cluster.yaml"
		}
		if found.Address != want {
			t.Errorf("%s: from %s, want %s", path, found.Address, want)
		}
	}
}

// Address is the server that had the document, not the one that was asked first.
func TestDiscoverURLElsewhere(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	other, network := web(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, cluster.Data()[bootstraptoken.KubeconfigKey])
	})
	asked, _ := web(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/document", http.StatusFound)
	})
	network.SystemRoots.AddCert(asked.Certificate())
	found, err := bootstraptoken.DiscoverURL(t.Context(), asked.URL, *network)
	if err != nil || found.Address != other.URL+"/document" {
		t.Errorf("%+v, %v", found, err)
	}
	// The error has the check that failed, or the system's error.
	elsewhere := cluster.URL()
	misled, network := web(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) })
	var own *bootstraptoken.Error
	if _, err = bootstraptoken.DiscoverURL(t.Context(), misled.URL, *network); !errors.Is(err, bootstraptoken.CheckCertificate) || !errors.As(err, &own) || own.Err != nil {
		t.Errorf("another CA: %v, want %v", err, bootstraptoken.CheckCertificate)
	}
	elsewhere = "https://127.0.0.1:1/"
	limited := giveUp(t, network, 2)
	if _, err = bootstraptoken.DiscoverURL(limited, misled.URL, *network); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("no server: %v, want %v", err, syscall.ECONNREFUSED)
	}
	// As many redirects as are followed, and one more.
	for redirects, want := range map[string]error{"5": nil, "6": bootstraptoken.Check("redirect")} {
		server, network := web(t, func(w http.ResponseWriter, r *http.Request) {
			left, err := strconv.Atoi(r.URL.Path[1:])
			if err != nil {
				t.Error(err)
			}
			if left > 0 {
				http.Redirect(w, r, "/"+strconv.Itoa(left-1), http.StatusFound)
				return
			}
			_, _ = io.WriteString(w, cluster.Data()[bootstraptoken.KubeconfigKey])
		})
		if found, err := bootstraptoken.DiscoverURL(t.Context(), server.URL+"/"+redirects, *network); !errors.Is(err, want) || (found == nil) != (want != nil) {
			t.Errorf("%s redirects: %+v, %v, want %v", redirects, found, err, want)
		}
	}
}

// The query of a URL is in no error, wherever a server repeats it.
func TestDiscoverURLQueryIsSecret(t *testing.T) {
	const secret = "S3cretQuery"
	location := map[string]string{
		"/loop": "/loop?", "/plain": "http://127.0.0.1/?", "/user": "https://", "/host": "https://-", "/name": "https://",
		"/malformed": "https://[::1/?", "/escape": "https://127.0.0.1:1/%zz?", "/port": "https://127.0.0.1:99999/?", "/scheme": "", "/closed": "https://127.0.0.1:1/",
	}
	suffix := map[string]string{"/user": "@127.0.0.1/", "/name": ".invalid/", "/scheme": "://x/"}
	server, network := web(t, func(w http.ResponseWriter, r *http.Request) {
		echo := r.URL.RawQuery
		if to, ok := location[r.URL.Path]; ok {
			w.Header().Set("Location", to+echo+suffix[r.URL.Path])
			w.WriteHeader(http.StatusFound)
			return
		}
		answer := map[string]string{
			"/status":  "HTTP/1.1 " + echo + "\r\n\r\n",
			"/version": echo + " 200 OK\r\n\r\n",
			"/header":  "HTTP/1.1 200 OK\r\n" + echo + "\r\n\r\n",
			"/length":  "HTTP/1.1 200 OK\r\nContent-Length: " + echo + "\r\n\r\n",
			"/coding":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + echo + "\r\n\r\n",
			"/trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\n" + echo + "\r\n\r\n",
		}[r.URL.Path]
		if answer == "" { // a document
			_, _ = io.WriteString(w, strings.ReplaceAll(strings.TrimPrefix(r.URL.Path, "/"), "QUERY", echo))
			return
		}
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(connection, answer)
		_ = connection.Close()
	})
	paths := slices.Collect(maps.Keys(location))
	paths = append(paths, "/status", "/version", "/header", "/length", "/coding", "/trailer",
		"/*QUERY", "/QUERY", "/QUERY: a", "/{a: QUERY, QUERY: a, QUERY: b}", "/<a href=QUERY>", "/!QUERY a", "/{apiVersion: [QUERY]}", "/{clusters: QUERY}")
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			network := *network
			network.Dial = func(ctx context.Context, name, address string) (net.Conn, error) {
				if !strings.HasPrefix(address, "127.0.0.1:") {
					return nil, &net.DNSError{Err: "no such host", Name: address}
				}
				return new(net.Dialer).DialContext(ctx, name, address)
			}
			limited := giveUp(t, &network, 3)
			found, err := bootstraptoken.DiscoverURL(limited, server.URL+(&url.URL{Path: path}).EscapedPath()+"?"+secret, network)
			if err == nil {
				t.Fatalf("found %+v", found)
			}
			if text := strings.ToLower(fmt.Sprintf("%v %+v %#v", err, err, err)); strings.Contains(text, strings.ToLower(secret)) {
				t.Errorf("the query is in %s", text)
			}
		})
	}
}

func TestDiscoverURLRefuses(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("the plain server was asked")
	}))
	t.Cleanup(plain.Close)
	server, network := web(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/plain":
			http.Redirect(w, r, plain.URL, http.StatusFound)
		case "/user":
			http.Redirect(w, r, "https://me:pw@"+r.Host+"/", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/large":
			_, _ = w.Write(make([]byte, bootstraptoken.MaxKubeconfigSize+1))
		case "/credentials":
			_, _ = io.WriteString(w, strings.Replace(cluster.Data()[bootstraptoken.KubeconfigKey], "users: null", "users: [{name: a, user: {token: b}}]", 1))
		case "/gone":
			http.NotFound(w, r)
		case "/secret":
			w.WriteHeader(http.StatusForbidden)
		}
	})
	for address, test := range map[string]struct {
		want  bootstraptoken.Check
		retry bool
	}{
		plain.URL:           {bootstraptoken.Check("server-url-scheme"), false},
		"file:///etc/hosts": {bootstraptoken.Check("server-url-scheme"), false},
		"":                  {bootstraptoken.Check("server-url"), false},
		"cluster.yaml":      {bootstraptoken.Check("server-url-scheme"), false},
		"https://":          {bootstraptoken.Check("server-url"), false},
		"https://a b/":      {bootstraptoken.Check("server-url"), false},
		"https://a/%zz":     {bootstraptoken.Check("server-url"), false},
		"https://me:pw@a/":  {bootstraptoken.Check("kubeconfig-credentials"), false},
		"https://a/" + strings.Repeat("a", bootstraptoken.MaxServerSize): {bootstraptoken.Check("server-url"), false},
		server.URL + "/plain":       {bootstraptoken.Check("redirect"), false},
		server.URL + "/user":        {bootstraptoken.Check("redirect"), false},
		server.URL + "/loop":        {bootstraptoken.Check("redirect"), false},
		server.URL + "/large":       {bootstraptoken.Check("reply"), false},
		server.URL + "/empty":       {bootstraptoken.Check("kubeconfig"), false},
		server.URL + "/credentials": {bootstraptoken.Check("kubeconfig-credentials"), false},
		server.URL + "/gone":        {bootstraptoken.Check("http-status"), true},
		server.URL + "/secret":      {bootstraptoken.Check("forbidden"), true},
	} {
		t.Run(address, func(t *testing.T) {
			network := *network
			ctx := t.Context()
			if test.retry {
				ctx = giveUp(t, &network, 1)
			}
			found, err := bootstraptoken.DiscoverURL(ctx, address, network)
			if found != nil || !errors.Is(err, test.want) || errors.Is(err, refusal.ErrRetry) != test.retry || strings.Contains(err.Error(), "cluster-info") {
				t.Errorf("%.80s: %+v, %v, want %v", address, found, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "pw") {
				t.Errorf("%s: the error has the password: %v", address, err)
			}
		})
	}
}

// A server that is not known by the roots, and one that is not there; the query of the
// URL is in neither error.
func TestDiscoverURLOfOthers(t *testing.T) {
	server, network := web(t, func(http.ResponseWriter, *http.Request) {})
	other := *network
	other.SystemRoots = x509.NewCertPool()
	_, err := bootstraptoken.DiscoverURL(t.Context(), server.URL+"/?signature=secret", other)
	if !errors.Is(err, bootstraptoken.CheckCertificate) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want %v", err, bootstraptoken.CheckCertificate)
	}
	server.Close()
	limited := giveUp(t, network, 1)
	_, err = bootstraptoken.DiscoverURL(limited, server.URL+"/?signature=secret", *network)
	if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want %v", err, refusal.ErrRetry)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bootstraptoken.DiscoverURL(ctx, "https://127.0.0.1:1/", bootstraptoken.Network{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
