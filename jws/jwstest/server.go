package jwstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nodeattest/nodeattest/jws"
)

// The paths of kube-apiserver (pkg/serviceaccount/openidmetadata.go).
const (
	discoveryPath = "/.well-known/openid-configuration"
	keySetPath    = "/openid/v1/jwks"
)

// oversize is the length in bytes of an oversized key set: more than jws.ParseJWKS reads.
const oversize = 2 << 20

// Server is the server of an issuer over real TLS, at the paths of kube-apiserver: a discovery
// document (OpenID Connect Discovery 1.0, section 3) and the key set to which it leads, with a max-age
// of an hour. It is safe for concurrent use.
type Server struct {
	server *httptest.Server
	closed chan struct{} // ends requests that hang
	end    func()        // closes closed, once

	mu       sync.Mutex
	keys     []byte // the set as it is published
	served   []byte // while a fault says so: another set
	fault    Fault
	requests []*http.Request
}

// NewServer starts a server of these keys, and closes it when the test ends. If that fails, so does
// the test.
func NewServer(t testing.TB, keys ...*jws.Key) *Server {
	t.Helper()
	s, err := OpenServer(keys...)
	if err != nil {
		t.Fatalf("jwstest: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() }) // which never fails
	return s
}

// OpenServer is [NewServer] for use outside tests; the caller closes the server. The errors are
// from jws.MarshalJWKS.
func OpenServer(keys ...*jws.Key) (*Server, error) {
	s := new(Server)
	if err := s.SetKeys(keys...); err != nil {
		return nil, err
	}
	s.closed = make(chan struct{})
	s.end = sync.OnceFunc(func() { close(s.closed) })
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(s.serveHTTP))
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients that hang up
	s.server.StartTLS()
	return s, nil
}

// Close ends the requests under way and stops the server. It never fails.
func (s *Server) Close() error {
	s.end()
	s.server.Close()
	return nil
}

// Issuer returns the issuer's URL, https://127.0.0.1:<port>, as in the discovery document: the iss
// of its tokens.
func (s *Server) Issuer() string { return s.server.URL }

// JWKSURL returns the URL of the key set.
func (s *Server) JWKSURL() string { return s.server.URL + keySetPath }

// Client returns a client that trusts the server's certificate.
func (s *Server) Client() *http.Client { return s.server.Client() }

// RemoteConfig is a verifier's configuration: the client and the issuer. A jws.RemoteKeySet fetches at
// most once in 10 seconds, so a test of two fetches sets the configuration's Now.
func (s *Server) RemoteConfig() jws.RemoteConfig {
	return jws.RemoteConfig{Client: s.Client(), Issuer: s.Issuer()}
}

// SetKeys replaces the published keys: a rotation, or, with the same key ID, a key
// that is not the one that signed. The errors are from jws.MarshalJWKS.
func (s *Server) SetKeys(keys ...*jws.Key) error {
	set, err := jws.MarshalJWKS(keys)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = set
	return nil
}

// Requests returns the requests that reached the server, in order, with each that hangs.
func (s *Server) Requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Fault is a way in which a server of key sets fails. The zero value is a server that works.
type Fault int

// The faults.
const (
	// Hang reads requests and answers none, until the client leaves or the server is closed.
	Hang Fault = iota + 1
	// Fail answers each request with status 500.
	Fail
	// Stale serves the key set as it was when the fault began, whatever SetKeys publishes, as a cache
	// in front of an issuer does.
	Stale
	// Oversized serves the keys in a set of 2,097,152 bytes that is valid otherwise.
	Oversized
	// SwappedKeys serves another key, of the same algorithm, under each key ID of the moment at which
	// the fault began: the signatures of the issuer's tokens do not verify.
	SwappedKeys
)

// SetFault makes the server fail from now on; 0 makes it work again. Of an unknown fault there is an
// error.
func (s *Server) SetFault(fault Fault) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := s.keys
	switch fault {
	case 0, Hang, Fail, Stale:
	case Oversized:
		served = fmt.Appendf(nil, `{"x":"%s",%s`, strings.Repeat("x", oversize-len(`{"x":"",`)-len(s.keys)+1), s.keys[1:])
	case SwappedKeys:
		if served, err = swapped(s.keys); err != nil {
			return err
		}
	default:
		return fmt.Errorf("jwstest: got the fault %d, want 0 to %d", fault, SwappedKeys)
	}
	s.fault, s.served = fault, served
	return nil
}

// swapped returns a set with a new key for each key ID and algorithm of a set.
func swapped(set []byte) ([]byte, error) {
	keys, err := jws.ParseJWKS(set)
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		other, err := OpenSigner(nil, jws.SignerOptions{KeyID: k.KeyID(), Algorithm: k.Algorithm()})
		if err != nil {
			return nil, err
		}
		keys[i] = other.Key()
	}
	return jws.MarshalJWKS(keys)
}

// serveHTTP records a request before anything answers it.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	fault, published, set := s.fault, s.keys, s.keys
	if fault != 0 {
		set = s.served
	}
	s.mu.Unlock()
	switch fault {
	case Hang:
		select {
		case <-r.Context().Done():
		case <-s.closed:
		}
		panic(http.ErrAbortHandler) // no response, not an empty one
	case Fail:
		http.Error(w, "jwstest: this server fails", http.StatusInternalServerError)
		return
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "jwstest: GET only", http.StatusMethodNotAllowed)
	case r.URL.Path == discoveryPath:
		document, _ := json.Marshal(map[string]any{ // strings always have an encoding
			"issuer": s.Issuer(), "jwks_uri": s.JWKSURL(), "response_types_supported": []string{"id_token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": algorithms(published),
		})
		answer(w, "application/json", document)
	case r.URL.Path == keySetPath:
		answer(w, "application/jwk-set+json", set)
	default:
		http.NotFound(w, r)
	}
}

// algorithms returns the algorithms of a set's keys.
func algorithms(set []byte) []jws.Algorithm {
	keys, _ := jws.ParseJWKS(set) // as MarshalJWKS wrote it
	found := []jws.Algorithm{}
	for _, k := range keys {
		if !slices.Contains(found, k.Algorithm()) {
			found = append(found, k.Algorithm())
		}
	}
	return found
}

func answer(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = bytes.NewReader(body).WriteTo(w) // a client that hung up
}
