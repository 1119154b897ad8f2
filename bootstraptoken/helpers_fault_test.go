package bootstraptoken_test

import (
	"cmp"
	"net/http"
	"sync/atomic"
	"time"
)

// A fault is a fault of an API server's answers.
type fault struct {
	// requests is how many it applies to, from now on; 0 means all.
	requests int
	// delay is how long the server waits before it answers, at most until the client is gone.
	delay time.Duration
	// status is the HTTP status to answer with, instead of the object; 0 means the real answer.
	status int
	// location makes the answer a redirect, with the status 302 unless status is set.
	location string
	// contentType and body are what to answer instead; a nil body means the real answer.
	contentType string
	body        []byte
	// hangUp closes the connection without an answer.
	hangUp bool
}

// before puts the fault in front of a handler.
func (f fault) before(next http.Handler) http.Handler {
	var seen atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := seen.Add(1); f.requests > 0 && n > int64(f.requests) {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case <-time.After(f.delay):
		case <-r.Context().Done():
			return
		}
		switch {
		case f.hangUp:
			panic(http.ErrAbortHandler) // net/http's way to end a connection
		case f.location != "":
			w.Header().Set("Location", f.location)
			w.WriteHeader(cmp.Or(f.status, http.StatusFound))
		case f.status != 0:
			http.Error(w, http.StatusText(f.status), f.status)
		case f.body != nil:
			w.Header().Set("Content-Type", f.contentType)
			_, _ = w.Write(f.body) // a client that hung up
		default:
			next.ServeHTTP(w, r)
		}
	})
}
