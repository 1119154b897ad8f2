// Package httpserver is the HTTP server of the programs: of a kubelet's probes, of metrics, and of
// machines that enrol. Its clients are not authenticated, so everything that they can hold has a
// bound: connections, of all clients and of each address, headers, bodies and time.
package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// Limits bound the connections, memory and time that clients may take of a server.
type Limits struct {
	// Connections may be open at a time, and PerAddress of them from one IPv4 address or one /64
	// of IPv6. Each carries one request.
	Connections, PerAddress int
	// Body is the size of the largest request body, in bytes.
	Body int64
	// Patience is how long the request may take to arrive, a TLS handshake included, and twice
	// that is how long reading its body and the reply may take.
	Patience time.Duration
}

// Headers is the size of the largest request headers, in bytes, for every server. net/http reads
// up to 4 KiB more before it replies with 431.
const Headers = 4 << 10

// Limits of /healthz and /readyz (Probes), of /metrics (Metrics), of a node's /metrics (Local) and of ak-ca
// (Enrolments). With 8 KiB of the smallest headers on each connection, the connections of one server hold
// less than a tenth of the memory that the Deployments have.
var (
	Probes     = Limits{Connections: 256, PerAddress: 64, Patience: 5 * time.Second}
	Metrics    = Limits{Connections: 128, PerAddress: 32, Patience: 5 * time.Second}
	Local      = Limits{Connections: 16, PerAddress: 16, Patience: 5 * time.Second}
	Enrolments = Limits{Connections: 128, PerAddress: 32, Body: 256 << 10, Patience: 10 * time.Second}
)

// connKey is the key of a request's connection in its context.
type connKey struct{}

// New returns a server with the limits, for the listener of [Limits.Listen]. Handlers get a
// request whose body has arrived. Errors that clients cause are not logged; a handler's panic is.
func New(h http.Handler, l Limits, errorLog slog.Handler) *http.Server {
	s := &http.Server{
		Handler: l.receiving(h), Protocols: new(http.Protocols), MaxHeaderBytes: Headers,
		ReadTimeout: l.Patience, WriteTimeout: 2 * l.Patience, ErrorLog: slog.NewLogLogger(panics{errorLog}, slog.LevelError),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	s.Protocols.SetHTTP1(true) // a connection of HTTP/2 carries many requests
	s.SetKeepAlivesEnabled(false)
	return s
}

// receiving reads a request's body, and then has h reply.
func (l Limits) receiving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, l.Body))
		if err != nil {
			status := http.StatusBadRequest
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, http.StatusText(status), status)
			return
		}
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.arrived()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	})
}

// panics logs only the panics of handlers.
type panics struct{ slog.Handler }

func (p panics) Handle(ctx context.Context, r slog.Record) error {
	if !strings.HasPrefix(r.Message, "http: panic serving ") {
		return nil
	}
	return p.Handler.Handle(ctx, r)
}
