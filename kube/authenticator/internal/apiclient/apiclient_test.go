package apiclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	testSecret = "0123456789abcdef"
	testToken  = "attest." + testSecret
	prefix     = "nodeattest-node-1-"
)

// server is an API server, or what stands in its place.
type server struct {
	*httptest.Server
	open   atomic.Int64 // connections
	opened atomic.Int64
}

// newServer starts one that speaks HTTP/2.
func newServer(t testing.TB, answer http.HandlerFunc) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(answer)}
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
			s.opened.Add(1)
		case http.StateClosed:
			s.open.Add(-1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// config is how the server is reached with a token.
func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: testToken, TLSClientConfig: rest.TLSClientConfig{CAData: caData(s.Certificate())}}
}

func caData(cas ...*x509.Certificate) []byte {
	var all []byte
	for _, ca := range cas {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})...)
	}
	return all
}

// connect connects until the test ends.
func connect(t testing.TB, c *rest.Config, certificate *tls.Certificate) *Client {
	t.Helper()
	made := testkit.Must(Connect(c, certificate))
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	return made
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// event writes one event of a watch.
func event(w http.ResponseWriter, kind string, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	w.(http.Flusher).Flush()
}

func failure(code int32, message string) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Message: message}
}

// request is one as a server has it.
func request(name string) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", ResourceVersion: "7"}}
}

// filed is one as a node files it.
func filed() *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
}

// never has a watch go on.
func never(*certificatesv1.CertificateSigningRequest) bool { return false }

// watched returns the error of a watch, and the number of versions before that.
func watched(t testing.TB, c *Client, o *certificatesv1.CertificateSigningRequest) (int, error) {
	t.Helper()
	n := 0
	_, err := c.follow(t.Context(), o, func(o *certificatesv1.CertificateSigningRequest) bool {
		n++
		return never(o)
	})
	return n, err
}

// eventually waits for the other side.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("it did not happen: %s", what)
}

// TestCalls makes each call once, with a token and with a key that has no PEM form.
func TestCalls(t *testing.T) {
	t.Parallel()
	reply := func(w http.ResponseWriter, r *http.Request) {
		if accepts := r.Header.Get("Accept-Encoding"); accepts != "" {
			t.Errorf("answers in %s are asked for", accepts)
		}
		user := r.Header.Get("Authorization")
		if len(r.TLS.PeerCertificates) != 0 {
			user = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			answer(w, http.StatusCreated, &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
				Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: strings.TrimSuffix(user, testSecret), UID: user}}})
		case r.Method == http.MethodPost:
			answer(w, http.StatusCreated, request(prefix+"x7z9q"))
		case r.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", "application/json")
			event(w, "MODIFIED", request("another"))
			event(w, "MODIFIED", request(prefix+"x7z9q"))
			event(w, "BOOKMARK", request(""))
		default:
			answer(w, http.StatusOK, request(prefix+"x7z9q"))
		}
	}
	t.Run("HTTP/2", func(t *testing.T) { checkCalls(t, newServer(t, reply)) })
	t.Run("HTTP/1.1", func(t *testing.T) {
		s := &server{Server: httptest.NewUnstartedServer(http.HandlerFunc(reply))}
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
		s.StartTLS()
		t.Cleanup(s.Close)
		checkCalls(t, s)
	})
}

func checkCalls(t *testing.T, s *server) {
	t.Helper()
	anonymous := rest.AnonymousClientConfig(s.config())
	for user, c := range map[string]*Client{"Bearer " + testToken: connect(t, s.config(), nil), "node-1": connect(t, anonymous, sealed(t, nil))} {
		o, err := c.Create(t.Context(), filed())
		if err != nil || o.Name != prefix+"x7z9q" {
			t.Fatalf("%s: filed %v, %v", user, o, err)
		}
		if got, err := c.get(t.Context(), o); err != nil || got.ResourceVersion != "7" {
			t.Errorf("%s: read %v, %v", user, got, err)
		}
		if n, err := watched(t, c, o); n != 1 || err != nil {
			t.Errorf("%s: %d versions, %v", user, n, err)
		}
		if who, err := c.WhoAmI(t.Context()); err != nil || who.UID != user || who.Username == "" {
			t.Errorf("%s: the server knows %v, %v", user, who, err)
		}
	}
	if n := s.opened.Load(); n > 2 {
		t.Errorf("%d connections of two clients", n)
	}
}

// closing is a key that notes that it was closed.
type closing struct {
	*ecdsa.PrivateKey
	closed *int
}

func (k closing) Close() error {
	*k.closed++
	return nil
}

// sealed is a client certificate of node-1 with a key that has no PEM form.
func sealed(t testing.TB, closed *int) *tls.Certificate {
	t.Helper()
	ca := newCA(t, "clients", nil)
	made := ca.issue(t, "node-1")
	if closed != nil {
		made.PrivateKey = closing{made.PrivateKey.(*ecdsa.PrivateKey), closed}
	}
	return made
}

// TestGone: a request that was deleted, or replaced by another one of its name.
func TestGone(t *testing.T) {
	t.Parallel()
	o := request("a")
	other := request("a")
	other.UID = "another"
	for name, reply := range map[string]http.HandlerFunc{
		"not found": func(w http.ResponseWriter, _ *http.Request) {
			status := failure(http.StatusNotFound, "x")
			status.Reason = metav1.StatusReasonNotFound
			answer(w, http.StatusNotFound, status)
		},
		"another":       func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, other) },
		"another watch": func(w http.ResponseWriter, _ *http.Request) { event(w, "MODIFIED", other) },
		"deleted":       func(w http.ResponseWriter, _ *http.Request) { event(w, "DELETED", o) },
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, newServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				reply(w, r)
			}).config(), nil)
			_, err := c.get(t.Context(), o)
			if name == "another watch" || name == "deleted" {
				_, err = watched(t, c, o)
			}
			if !errors.Is(err, CheckGone) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestNames: a server makes up a name that no generated name can be.
func TestNames(t *testing.T) {
	t.Parallel()
	name := ""
	c := connect(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusCreated, request(name)) }).config(), nil)
	for _, name = range []string{"", ".", "..", "../../../../api/v1/secrets", prefix + "a/b", prefix + "\ny", prefix + "%2f..", strings.Repeat("a", 64<<10), prefix + "\x1b[2J", prefix + testToken, testToken} {
		_, err := c.Create(t.Context(), filed())
		if !errors.Is(err, CheckAnswer) || len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\x1b\n") || strings.Contains(err.Error(), testToken) {
			t.Errorf("%.40q: got %.400q", name, err)
		}
	}
	for _, name = range []string{prefix + "x7z9q", prefix[:10] + "x7z9q"} { // Kubernetes shortens a long one
		if o, err := c.Create(t.Context(), filed()); err != nil || o.Name != name {
			t.Errorf("%q: got %v, %v", name, o, err)
		}
	}
}

// TestNobody: an answer that says nothing, or an object of another kind, which client-go takes
// for an empty one.
func TestNobody(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]any{"another kind": request("a"), "empty": &authenticationv1.SelfSubjectReview{}} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusCreated, object) }).config(), nil)
			if who, err := c.WhoAmI(t.Context()); err == nil {
				t.Errorf("got %v", who)
			}
		})
	}
}

// TestErrors: the server's status is in the error.
func TestErrors(t *testing.T) {
	t.Parallel()
	code := 0
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, code, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
			Reason: map[int]metav1.StatusReason{401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden}[code]})
	})
	c := connect(t, s.config(), nil)
	for n, is := range map[int]func(error) bool{401: apierrors.IsUnauthorized, 403: apierrors.IsForbidden} {
		code = n
		if _, err := c.WhoAmI(t.Context()); !is(err) || err.Error() == "" {
			t.Errorf("%d: got %v", n, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.WhoAmI(ended); !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("after its end: got %v", err)
	}
	s.Close()
	if _, err := connect(t, s.config(), nil).WhoAmI(t.Context()); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("no server: got %v", err)
	}
}

// TestQuiet: a server's data gets into no log, neither its warnings nor its errors.
func TestQuiet(t *testing.T) {
	logged := 0
	count := func(string, string) { logged++ }
	rest.SetDefaultWarningHandler(warnings{count})
	t.Cleanup(func() { rest.SetDefaultWarningHandler(rest.WarningLogger{}) })
	ctx := logr.NewContext(t.Context(), funcr.New(count, funcr.Options{Verbosity: 10}))
	c := connect(t, newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "`+r.Header.Get("Authorization")+`"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(make([]byte, maxAnswer+1))
	}).config(), nil)
	_, err := c.get(ctx, request("a"))
	_, watched := c.follow(ctx, request("a"), never)
	if !errors.Is(err, CheckAnswer) || watched == nil || logged != 0 {
		t.Errorf("%d lines were logged; %v, %v", logged, err, watched)
	}
}

type warnings struct{ count func(string, string) }

func (w warnings) HandleWarningHeader(_ int, _, text string) { w.count("", text) }

// TestClose: no connection stays, also if a watch is under way, and none is made after it.
func TestClose(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			answer(w, http.StatusOK, request("a"))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		event(w, "MODIFIED", request("a"))
		<-r.Context().Done()
	})
	closed := 0
	for range 20 {
		c := testkit.Must(Connect(rest.AnonymousClientConfig(s.config()), sealed(t, &closed)))
		testkit.Must(c.get(t.Context(), request("a")))
		_, err := c.follow(t.Context(), request("a"), func(*certificatesv1.CertificateSigningRequest) bool {
			testkit.MustDo(errors.Join(c.Close(), c.Close()))
			return true
		})
		testkit.MustDo(err)
		if _, err := c.get(t.Context(), request("a")); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("a call after it: got %v", err)
		}
	}
	eventually(t, "the end of every connection", func() bool { return s.open.Load() == 0 })
	if closed != 20 || s.opened.Load() != 20 {
		t.Errorf("%d keys were closed, %d connections opened, want 20 each", closed, s.opened.Load())
	}
	if _, err := Connect(&rest.Config{Host: "x"}, sealed(t, &closed)); err == nil || closed != 21 {
		t.Errorf("got %v; %d keys were closed", err, closed)
	}
}

// testCA signs certificates.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newCA makes a CA, which signs itself or which parent signs.
func newCA(t testing.TB, name string, parent *testCA) *testCA {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ca := &testCA{key: key}
	if parent == nil {
		parent = ca
	}
	ca.cert = parent.sign(t, name, key)
	return ca
}

// sign makes a CA's certificate for a key.
func (ca *testCA) sign(t testing.TB, name string, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	return ca.make(t, template, name, key)
}

func (ca *testCA) make(t testing.TB, template *x509.Certificate, name string, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.Subject.CommonName = name
	parent := ca.cert
	if parent == nil {
		parent = template
	}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), ca.key))
	made := testkit.Must(x509.ParseCertificate(der))
	return made
}

// issue makes a certificate for a server at 127.0.0.1, or for a client, with a chain.
func (ca *testCA) issue(t testing.TB, name string, chain ...*x509.Certificate) *tls.Certificate {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	leaf := ca.make(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, name, key)
	made := &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
	for _, c := range chain {
		made.Certificate = append(made.Certificate, c.Raw)
	}
	return made
}

// TestCA: of several CAs that counts under which the server's certificate verified.
func TestCA(t *testing.T) {
	t.Parallel()
	old, next := newCA(t, "old", nil), newCA(t, "next", nil)
	crossed := old.sign(t, "next", next.key)      // next, signed by old
	below := newCA(t, "below", old)               // an intermediate of old
	alsoBelow := next.sign(t, "below", below.key) // and of next
	renewed := old.sign(t, "old", old.key)        // the CA made anew for its key
	stranger := newCA(t, "an unknown CA", nil)
	for name, row := range map[string]struct {
		bundle []*x509.Certificate
		server *tls.Certificate
		want   *x509.Certificate
	}{
		"the first":              {[]*x509.Certificate{old.cert, next.cert}, old.issue(t, "api"), old.cert},
		"the second":             {[]*x509.Certificate{old.cert, next.cert}, next.issue(t, "api"), next.cert},
		"signed by both":         {[]*x509.Certificate{old.cert, next.cert}, next.issue(t, "api", crossed), next.cert},
		"only by way of the old": {[]*x509.Certificate{old.cert, stranger.cert}, next.issue(t, "api", crossed), old.cert},
		"an intermediate":        {[]*x509.Certificate{next.cert, old.cert}, below.issue(t, "api", below.cert), old.cert},
		"that is in the bundle":  {[]*x509.Certificate{old.cert, below.cert}, below.issue(t, "api", below.cert), below.cert},
		"of two CAs":             {[]*x509.Certificate{next.cert, old.cert}, below.issue(t, "api", below.cert, alsoBelow), next.cert},
		"in the other order":     {[]*x509.Certificate{old.cert, next.cert}, below.issue(t, "api", below.cert, alsoBelow), old.cert},
		"a renewed one":          {[]*x509.Certificate{renewed, old.cert}, old.issue(t, "api"), renewed},
		"none of them":           {[]*x509.Certificate{old.cert, next.cert}, stranger.issue(t, "api"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.TLS = &tls.Config{Certificates: []tls.Certificate{*row.server}, MinVersion: tls.VersionTLS12}
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			defer s.Close()
			c := connect(t, &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: caData(row.bundle...)}}, nil)
			got, err := c.CA(t.Context())
			if row.want == nil {
				if !errors.Is(err, CheckServerCertificate) || got != nil {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || !got.Equal(row.want) {
				t.Errorf("got %v, %v, want %v", got, err, row.want.Subject)
			}
			if again, err := c.CA(t.Context()); err != nil || again != got {
				t.Errorf("then %v, %v", again, err)
			}
		})
	}
	chains := [][]*x509.Certificate{{below.cert, crossed, old.cert}, {below.cert, next.cert}, {below.cert, crossed, next.cert}}
	if got := nearest(chains, []*x509.Certificate{old.cert, next.cert}); !got.Equal(next.cert) {
		t.Errorf("of chains in any order: got %v", got.Subject)
	}
	down := connect(t, &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: caData(old.cert)}}, nil)
	if ca, err := down.CA(t.Context()); ca != nil || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("no server: got %v, %v", ca, err)
	}
}
