package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/kube/internal/httpserver"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits for clients, which are not authenticated before their TPM's answer.
const (
	// perSecond is the rate of requests of all machines together, and burst how many are decided at
	// once. One address gets a quarter of both.
	perSecond, burst = 20, 40
	// maxAddresses is the number of addresses that are counted at a time.
	maxAddresses = 1024
	// followed is the interval between two reads of the files.
	followed = 10 * time.Second
)

// web has the address and the files of the HTTPS server.
type web struct{ address, certificate, key string }

// A server is a CA with an HTTPS server.
type server struct {
	config *config
	web    *web
	limit  *rate.Limiter
	opened atomic.Pointer[opened]

	mu   sync.Mutex // guards the fields below
	each map[netip.Prefix]*rate.Limiter
	out  io.Writer // a line for each certificate
	errs io.Writer
}

// opened has the last version of the files.
type opened struct {
	ca          *ca
	certificate *tls.Certificate
}

func newServer(c *config, w *web, out, errs io.Writer) (*server, error) {
	s := &server{config: c, web: w, limit: rate.NewLimiter(perSecond, burst), each: map[netip.Prefix]*rate.Limiter{}, out: out, errs: errs}
	return s, s.read()
}

// read reads the files.
func (s *server) read() error {
	ca, err := s.config.open(time.Now)
	if err != nil {
		return err
	}
	pair, err := keyPair("--tls-certificate", "--tls-key", s.web.certificate, s.web.key)
	if err != nil {
		return err
	}
	s.opened.Store(&opened{ca, pair})
	return nil
}

// run serves until the context ends. It reads changed files: a machine that leaves the list is refused
// from then on.
func (s *server) run(ctx context.Context) error {
	listener, err := httpserver.Enrolments.Listen(ctx, s.web.address)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.errs, "ak-ca: https://%s/enrol\n", listener.Addr())
	var followers sync.WaitGroup
	following, stop := context.WithCancel(logr.NewContext(ctx, logr.FromSlogHandler(slog.NewTextHandler(s.errs, nil))))
	followers.Go(func() { files.Follow(following, followed, "the files of the CA", s.read) }) //goroutine: reads the files of the CA
	defer followers.Wait()
	defer stop()
	h := s.http(httpserver.Enrolments)
	served := recovered.Go(func() error { return h.ServeTLS(listener, "", "") })
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpserver.Enrolments.Patience)
	defer cancel()
	_ = h.Shutdown(ending) // Close ends the remaining requests
	err = h.Close()
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// http is the server without its listener.
func (s *server) http(l httpserver.Limits) *http.Server {
	h := httpserver.New(s, l, slog.NewTextHandler(s.errs, nil))
	h.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.opened.Load().certificate, nil }}
	return h
}

// allow counts a request of an address, and reports whether it is within the limits.
func (s *server) allow(from netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.each[from]
	if of == nil {
		if len(s.each) == maxAddresses {
			clear(s.each) // each address gets its burst again, within the limit of all
		}
		of = rate.NewLimiter(s.limit.Limit()/4, max(1, s.limit.Burst()/4))
		s.each[from] = of
	}
	return of.Allow() && s.limit.Allow()
}

// ServeHTTP decides a request in the same way as one in a file. A refusal is in the reply.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/enrol":
		http.NotFound(w, r)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed)
		return
	case !s.allow(httpserver.From(r.RemoteAddr)):
		fail(w, http.StatusTooManyRequests)
		return
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest)
		return
	}
	reply, made, err := s.opened.Load().ca.reply(r.Context(), text)
	s.say(r.RemoteAddr, made, err)
	switch {
	case reply != nil:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	case errors.Is(err, refusal.ErrRetry):
		fail(w, http.StatusServiceUnavailable)
	default:
		fail(w, http.StatusBadRequest)
	}
}

// fail writes a status without the reason, which only the operator sees.
func fail(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }

// say logs the result of a request.
func (s *server) say(from, made string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		fmt.Fprintf(s.errs, "ak-ca: %s: %s\n", from, refusal.Escape(err.Error()))
	} else if made != "" {
		fmt.Fprintln(s.out, made)
	}
}
