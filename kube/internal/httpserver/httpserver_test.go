package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// served is a server that replies with the size of the body.
type served struct {
	*listener
	address string
	logged  *testkit.Log
}

func serve(t *testing.T, l Limits) *served {
	t.Helper()
	bare := testkit.Must(l.Listen(t.Context(), "127.0.0.1:0"))
	s := &served{bare.(*listener), bare.Addr().String(), new(testkit.Log)}
	h := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("in a handler")
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %v", len(body), err)
	}), l, slog.NewTextHandler(s.logged, nil))
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Serve(s.listener) }()
	t.Cleanup(func() { _ = h.Close(); <-done })
	return s
}

// dial connects from an address of 127.0.0.0/8, and writes.
func (s *served) dial(t *testing.T, from byte, text string) net.Conn {
	t.Helper()
	c := testkit.Must((&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}).DialContext(t.Context(), "tcp", s.address))
	t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, text) // unless it was evicted already
	return c
}

// reply reads until the server hangs up, and returns the status and the body.
func reply(t *testing.T, c net.Conn) (status, body string) {
	t.Helper()
	testkit.MustDo(c.SetReadDeadline(time.Now().Add(20 * time.Second)))
	text, err := io.ReadAll(c)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		t.Fatal("the server does not hang up")
	}
	status, rest, _ := strings.Cut(strings.TrimPrefix(string(text), "HTTP/1.1 "), "\r\n")
	_, body, _ = strings.Cut(rest, "\r\n\r\n")
	return status, body
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n"

// TestLimits: a request of the maximum size gets a reply, a larger or later one does not.
func TestLimits(t *testing.T) {
	s := serve(t, Limits{Connections: 8, PerAddress: 8, Body: 100, Patience: 300 * time.Millisecond})
	post := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", n, strings.Repeat("a", n))
	}
	headers := func(n int) string {
		return get + "X: " + strings.Repeat("a", n-len(get)-len("X: \r\n\r\n")) + "\r\n\r\n"
	}
	for name, row := range map[string]struct{ text, want, body string }{
		"a request":               {get + "\r\n", "200 OK", "0 <nil>"},
		"another one on its back": {get + "\r\n" + get + "\r\n", "200 OK", "0 <nil>"},
		"the largest body":        {post(100), "200 OK", "100 <nil>"},
		"a larger one":            {post(101), "413 Request Entity Too Large", "Request Entity Too Large\n"},
		"a body that never ends":  {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\na\r\n", 101), "413 Request Entity Too Large", "Request Entity Too Large\n"},
		"a body that stops":       {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\naa", "400 Bad Request", "Bad Request\n"},
		"headers of 4 KiB":        {headers(Headers), "200 OK", "0 <nil>"},
		"headers of 8 KiB":        {headers(2*Headers + 1), "431 Request Header Fields Too Large", "431 Request Header Fields Too Large"},
		"headers that stop":       {get + "X: a", "", ""},
		"no word":                 {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			status, body := reply(t, s.dial(t, 1, row.text))
			if status != row.want || body != row.body || time.Since(began) > 10*time.Second {
				t.Errorf("got %q, %q after %s, want %q, %q", status, body, time.Since(began), row.want, row.body)
			}
		})
	}
	if s.logged.String() != "" {
		t.Errorf("logged: %s", s.logged)
	}
	if status, _ := reply(t, s.dial(t, 1, "GET /panic HTTP/1.1\r\nHost: x\r\n\r\n")); status != "" || !strings.Contains(s.logged.String(), "in a handler") {
		t.Errorf("a panic: got %q, and logged %s", status, s.logged)
	}
}

// TestEviction: at a limit, a connection goes of the address that has most: the oldest whose request
// has not arrived, and else the oldest.
func TestEviction(t *testing.T) {
	bare := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	l := Limits{Connections: 5, PerAddress: 3}.bound(bare)
	defer l.Close()
	s := &served{l, bare.Addr().String(), nil}
	var accepted []*conn
	for n, row := range []struct {
		from   byte
		served bool
		gone   int // of the connections before, or -1
	}{
		{1, true, -1}, {1, false, -1}, {1, false, -1},
		{1, false, 1},                 // the address has three: its oldest that is not served
		{2, false, -1}, {2, true, -1}, // five are open: 0, 2, 3, 4, 5
		{3, false, 2},                                                        // 1 has most: the oldest that is not served
		{3, false, 3},                                                        // 1 and 2 have two: the oldest of these that is not served
		{3, true, 4},                                                         // 2 and 3 have two
		{4, false, 6},                                                        // 3 has three
		{4, true, 7}, {5, true, 9}, {6, true, 0}, {7, true, 5}, {8, true, 8}, // one of each: the oldest
	} {
		s.dial(t, row.from, "")
		c := testkit.Must(l.Accept())
		accepted = append(accepted, c.(*conn))
		if row.served {
			accepted[n].arrived()
		}
		for i, c := range accepted[:n] {
			_, err := c.Write(nil) // of one that is closed it is an error
			if was := accepted[i].listener == nil; !was && (err != nil) != (i == row.gone) {
				t.Errorf("connection %d: closed one is %d (%v), want %d", n, i, err, row.gone)
			}
			if err != nil {
				accepted[i].listener = nil
			}
		}
		total := 0
		for from, of := range l.of {
			if total += of.open; of.open > 3 {
				t.Errorf("connection %d: %s has %d", n, from, of.open)
			}
		}
		if total != len(l.open) || total > 5 {
			t.Errorf("connection %d: %d counted, %d open", n, total, len(l.open))
		}
	}
	last := accepted[len(accepted)-1]
	for range 2 { // twice counts once
		_ = last.Close()
	}
	if len(l.open) != 4 || len(l.of) != 4 {
		t.Errorf("%d are open of %d addresses, want 4", len(l.open), len(l.of))
	}
	_ = bare.Close()
	if _, err := l.Accept(); err == nil || len(l.open) != 4 {
		t.Errorf("a listener that is closed: %v, %d open", err, len(l.open))
	}
	if _, err := (Limits{}).Listen(t.Context(), "127.0.0.1:-1"); err == nil {
		t.Error("no address: no error")
	}
}

// TestFlooded has clients open connections as fast as they can, which send nothing, or headers
// without an end. A client of another address gets its replies.
func TestFlooded(t *testing.T) {
	for name, row := range map[string]struct {
		limits          Limits
		addresses, want int // of the flood; of 10 requests
	}{
		"probes, by one address": {Probes, 1, 10}, "metrics, by one address": {Metrics, 1, 10}, "enrolments, by one address": {Enrolments, 1, 10},
		"probes, by three": {Probes, 3, 10}, "probes, by 250": {Probes, 250, 4}, // which may be more than there are connections
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, row.limits)
			ctx, stop := context.WithCancel(t.Context())
			var flood sync.WaitGroup
			for n := range 3 {
				flood.Go(func() { s.flood(ctx, n, row.addresses) })
			}
			answered := 0
			for range 10 {
				time.Sleep(20 * time.Millisecond)
				if status, _ := reply(t, s.dial(t, 1, get+"\r\n")); status == "200 OK" {
					answered++
				}
			}
			if answered < row.want {
				t.Errorf("%d of 10 requests are answered, want %d", answered, row.want)
			}
			s.mu.Lock()
			if len(s.open) > row.limits.Connections {
				t.Errorf("%d connections are open, want at most %d", len(s.open), row.limits.Connections)
			}
			s.mu.Unlock()
			stop()
			flood.Wait()
		})
	}
}

// flood opens connections from so many addresses until ctx ends, and keeps many of them open.
func (s *served) flood(ctx context.Context, n, addresses int) {
	var open []net.Conn
	for i := 0; ctx.Err() == nil; i++ {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%addresses))}}).DialContext(ctx, "tcp", s.address)
		if err != nil {
			continue
		}
		_, _ = io.WriteString(c, get+strings.Repeat("a:\r\n", n*500))
		if open = append(open, c); len(open) > s.limits.Connections/2 {
			_ = open[0].Close()
			open = open[1:]
		}
	}
	for _, c := range open {
		_ = c.Close()
	}
}

func TestFrom(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64",
		"@": "invalid Prefix", "": "invalid Prefix",
	} {
		if got := From(remote).String(); got != want {
			t.Errorf("%q: got %s, want %s", remote, got, want)
		}
	}
}
