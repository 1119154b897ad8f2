package cloudtest

import (
	"net/http"
	"net/http/httptest"
	"sync"
)

// Server is the metadata server of one machine. Close it after use. It is safe for
// concurrent use.
type Server struct {
	// URL is its address, "http://127.0.0.1:<port>".
	URL string

	server *httptest.Server

	mu       sync.Mutex
	requests []string
	failures int
	status   int
}

// serve starts a server. A request with the header X-Forwarded-For came through a proxy, and
// every cloud refuses it.
func serve(h http.Handler) *Server {
	s := &Server{}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := s.note(r)
		switch {
		case status != 0:
			http.Error(w, "out of order", status)
		case r.Header.Get("X-Forwarded-For") != "":
			http.Error(w, "forwarded", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	}))
	s.URL = s.server.URL
	return s
}

// note records a request, and returns the status with which it must fail, or 0 if it must not.
func (s *Server) note(r *http.Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	if s.failures == 0 {
		return 0
	}
	s.failures--
	return s.status
}

// Fail makes the given number of next requests fail with an HTTP status.
func (s *Server) Fail(status, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.failures = status, times
}

// Requests are the requests so far, each as its method, a space and its path with the
// query.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

// Close stops the server.
func (s *Server) Close() { s.server.Close() }
