package bootstraptokentest

import (
	"cmp"
	"net/http"
	"time"
)

// Fault is what is wrong with the API server's answers. The zero Fault is nothing.
type Fault struct {
	// Requests is how many requests it is for, from now on; 0 means all.
	Requests int
	// Delay is how long the server waits before it answers, or until the client is gone.
	Delay time.Duration
	// Status is the HTTP status to answer with, and no object; 0 means the real answer.
	Status int
	// Location makes a redirect of it, with the status 302 unless Status is set.
	Location string
	// ContentType and Body are what to answer instead; Body nil means the real answer.
	ContentType string
	Body        []byte
	// HangUp closes the connection without an answer.
	HangUp bool
}

// SetFault makes the API server faulty; nil makes it work again.
func (c *Cluster) SetFault(f *Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = nil
	if f != nil {
		set := *f
		c.fault = &set
	}
}

// received keeps a request, and returns a copy of the fault that it meets.
func (c *Cluster) received(r *http.Request) *Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	if c.fault == nil {
		return nil
	}
	f := *c.fault
	if c.fault.Requests == 1 {
		c.fault = nil
	} else if c.fault.Requests > 1 {
		c.fault.Requests--
	}
	return &f
}

// serve reports whether it has answered.
func (f *Fault) serve(w http.ResponseWriter, r *http.Request) bool {
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			return true
		}
	}
	switch {
	case f.HangUp:
		panic(http.ErrAbortHandler) // net/http's way to end a connection
	case f.Location != "":
		w.Header().Set("Location", f.Location)
		w.WriteHeader(cmp.Or(f.Status, http.StatusFound))
	case f.Status != 0:
		status(w, f.Status, http.StatusText(f.Status), "a fault")
	case f.Body != nil:
		w.Header().Set("Content-Type", f.ContentType)
		_, _ = w.Write(f.Body) // a client that hung up
	default:
		return false
	}
	return true
}
