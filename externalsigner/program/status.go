package program

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/externalsigner"
	"github.com/nodeattest/nodeattest/externalsigner/internal/keys"
	"github.com/nodeattest/nodeattest/externalsigner/internal/promtext"
)

const (
	// nowhere is the statusAddress at which nothing listens.
	nowhere = "0"
	// statusConnections is how many connections are served at a time. Others are closed.
	statusConnections = 64
	// statusTimeout is how long a request may take to arrive, and its reply.
	statusTimeout = 5 * time.Second
	// statusHeaders is the maximum size of a request's headers in bytes.
	statusHeaders = 4 << 10
)

// status replies to requests for the health and the metrics of the program. Clients are not authenticated.
type status struct {
	server *externalsigner.Server
	keys   *keys.Keys
	log    *slog.Logger

	mu   sync.Mutex
	said string // why the program was not ready when that was last logged
}

// serve serves until ctx ends.
func (s *status) serve(ctx context.Context, address string) error {
	bare, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /metrics", s.metrics)
	h := &http.Server{
		Handler: mux, ReadTimeout: statusTimeout, WriteTimeout: statusTimeout, MaxHeaderBytes: statusHeaders,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // of what clients cause
	}
	h.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(ctx, func() { _ = h.Close() })() //goroutine: it runs net/http's code alone
	if err := h.Serve(&bounded{Listener: bare, places: make(chan struct{}, statusConnections)}); ctx.Err() == nil {
		return err
	}
	return nil
}

// ready replies whether kube-apiserver reaches the signer and gets its keys. Why not is logged, once for
// each reason.
func (s *status) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), statusTimeout/2)
	defer cancel()
	why := ""
	if err := s.server.Ready(ctx); err != nil {
		why = err.Error()
	} else if !s.keys.Status().Ready {
		why = "the key that is to sign is not there"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case why == s.said:
	case why == "":
		s.log.Info("ready")
	default:
		s.log.Error("not ready: kube-apiserver gets no keys or no signatures", "error", why)
	}
	s.said = why
	if why != "" {
		http.Error(w, "not ready: the signer has logged the reason", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// metrics writes the metrics of the server and of the keys.
func (s *status) metrics(w http.ResponseWriter, _ *http.Request) {
	var text bytes.Buffer // which takes no client's time
	if err := s.server.WriteMetrics(&text); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeKeyMetrics(&text, s.keys.Status(), len(s.keys.VerifyOnly()))
	w.Header().Set("Content-Type", promtext.ContentType)
	_, _ = w.Write(text.Bytes())
}

// writeKeyMetrics writes the metrics of the keys.
func writeKeyMetrics(to io.Writer, s keys.Status, verifyOnly int) {
	out := promtext.Writer{W: to}
	name := "nodeattest_external_signer_signing_key_timestamp_seconds"
	out.Head(name, promtext.Gauge, "When the key that signs began to sign, as a Unix time.")
	if len(s.Published) != 0 {
		out.Series(name, seconds(s.SigningSince), "kid", s.Published[0].Key.KeyID())
	}
	name = "nodeattest_external_signer_next_key_timestamp_seconds"
	out.Head(name, promtext.Gauge, "When the next key begins to sign, as a Unix time, during a rotation alone.")
	for _, k := range s.Published {
		if !k.SignsFrom.IsZero() {
			out.Series(name, seconds(k.SignsFrom), "kid", k.Key.KeyID())
		}
	}
	name = "nodeattest_external_signer_keys"
	out.Head(name, promtext.Gauge, "Keys that verify tokens: the signer's own, those of peers, and those that only verify.")
	out.Series(name, float64(len(s.Published)), "of", "signer")
	out.Series(name, float64(s.Peers), "of", "peers")
	out.Series(name, float64(verifyOnly), "of", "verify only")
	for _, counter := range []struct {
		name, help string
		value      uint64
	}{
		{"nodeattest_external_signer_rotations_total", "New keys that were published.", s.Rotations},
		{"nodeattest_external_signer_reload_failures_total", "How often a file of keys could not be read again; the old keys stayed in use.", s.Failures},
		{"nodeattest_external_signer_state_failures_total", "How often the state could not be written.", s.StateFailures},
	} {
		out.Head(counter.name, promtext.Counter, counter.help)
		out.Series(counter.name, float64(counter.value))
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// bounded is a listener with a limit of open connections.
type bounded struct {
	net.Listener
	places chan struct{}
}

// Accept accepts a connection for which there is a place. Others are closed.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{Conn: c, free: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

// A placed connection gives its place back once it is closed.
type placed struct {
	net.Conn
	free func()
}

// Close closes the connection.
func (p *placed) Close() error {
	defer p.free()
	return p.Conn.Close()
}
