package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// What strangers may cost: nobody is authenticated before a TPM has answered.
const (
	// maxConnections are served at a time, one request each; others wait to be accepted.
	maxConnections = 32
	// perSecond requests are looked at, of all machines together, and burst at once.
	perSecond, burst = 20, 40
	// patience is how long a request may take to come in, and a reply to go out.
	patience = 10 * time.Second
	// maxPosted bounds a request, in bytes, and maxHeaders its headers.
	maxPosted, maxHeaders = 256 << 10, 16 << 10
	// followed is how long it takes until a file that has changed is read.
	followed = 10 * time.Second
)

// web says where machines reach the CA, and by which certificate they know it.
type web struct{ address, certificate, key string }

// A server is a CA for machines that come over HTTPS.
type server struct {
	files  *config
	web    *web
	limit  *rate.Limiter
	opened atomic.Pointer[opened]

	mu     sync.Mutex // of what follows
	out    io.Writer  // a line for each certificate
	errs   io.Writer
	failed string // why the files were not read, as it was said last
}

// opened are the files as they were read last.
type opened struct {
	ca          *ca
	certificate *tls.Certificate
}

func newServer(files *config, w *web, out, errs io.Writer) (*server, error) {
	s := &server{files: files, web: w, limit: rate.NewLimiter(perSecond, burst), out: out, errs: errs}
	return s, s.read()
}

// read reads the files.
func (s *server) read() error {
	ca, err := s.files.open(time.Now)
	if err != nil {
		return err
	}
	chain, err := safefile.Read(s.web.certificate, maxFile, safefile.Trusted)
	if err != nil {
		return fmt.Errorf("--tls-certificate: %w", err)
	}
	key, err := safefile.Read(s.web.key, maxFile, safefile.Private)
	if err != nil {
		return fmt.Errorf("--tls-key: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return fmt.Errorf("--tls-certificate and --tls-key: %w", err)
	}
	s.opened.Store(&opened{ca, &pair})
	return nil
}

// follow reads the files again and again: a machine that leaves the list is refused from then on.
// What was read last stays while they cannot be read, which is said once.
func (s *server) follow(ctx context.Context) {
	tick := time.NewTicker(followed)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.readAgain()
		}
	}
}

func (s *server) readAgain() {
	err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.failed = ""
	case err.Error() != s.failed:
		s.failed = err.Error()
		fmt.Fprintln(s.errs, "ak-ca: what was read last stays:", refusal.Escape(s.failed))
	}
}

// run serves until the context ends.
func (s *server) run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.web.address)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.errs, "ak-ca: https://%s/enrol\n", listener.Addr())
	var followers sync.WaitGroup
	following, stop := context.WithCancel(ctx)
	followers.Go(func() { s.follow(following) })
	defer followers.Wait()
	defer stop()
	h := s.http(patience)
	served := make(chan error, 1)
	go func() { served <- h.ServeTLS(limited(listener, maxConnections), "", "") }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_ = h.Shutdown(ending) // who takes longer is cut off
	err = h.Close()
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// http is the server without its listener. There is no HTTP/2, one connection of which carries many
// requests.
func (s *server) http(patience time.Duration) *http.Server {
	h := &http.Server{Handler: s, ReadTimeout: patience, WriteTimeout: 2 * patience, MaxHeaderBytes: maxHeaders, Protocols: new(http.Protocols),
		ErrorLog:  log.New(io.Discard, "", 0), // what strangers write and do
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.opened.Load().certificate, nil }}}
	h.Protocols.SetHTTP1(true)
	h.SetKeepAlivesEnabled(false)
	return h
}

// ServeHTTP decides a request as if it came in a file. A refusal is in the reply.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/enrol":
		http.NotFound(w, r)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed)
		return
	case !s.limit.Allow():
		fail(w, http.StatusTooManyRequests)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPosted))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		fail(w, http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
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

// fail writes a status, and no more: why is for the operator.
func fail(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }

// say tells the operator what became of a request.
func (s *server) say(from, made string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		fmt.Fprintf(s.errs, "ak-ca: %s: %s\n", from, refusal.Escape(err.Error()))
	} else if made != "" {
		fmt.Fprintln(s.out, made)
	}
}

// limited bounds how many connections of a listener are open at a time.
func limited(l net.Listener, most int) net.Listener {
	return &limitedListener{l, make(chan struct{}, most)}
}

type limitedListener struct {
	net.Listener
	open chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	l.open <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &limitedConn{conn, sync.OnceFunc(func() { <-l.open })}, nil
}

type limitedConn struct {
	net.Conn
	closed func()
}

func (c *limitedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
