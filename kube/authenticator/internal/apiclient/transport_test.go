package apiclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// endless writes a beginning, and then one piece after another until the client stops reading.
func endless(kind string, code int, beginning, piece string) http.HandlerFunc {
	block := bytes.Repeat([]byte(piece), 1+(64<<10)/len(piece))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(code)
		_, err := io.WriteString(w, beginning)
		for err == nil {
			_, err = w.Write(block)
		}
	}
}

// TestBounds: an answer without end is read to the bounds, however it is made.
func TestBounds(t *testing.T) {
	const most = 24 << 20 // bytes allocated for one answer
	const object = `{"kind":"CertificateSigningRequest","apiVersion":"certificates.k8s.io/v1","metadata":{"name":"a","uid":"uid"`
	for name, reply := range map[string]http.HandlerFunc{
		"a text":     endless("application/json", http.StatusOK, object+`,"annotations":{"a":"`, "a"),
		"spaces":     endless("application/json", http.StatusOK, object, " "),
		"conditions": endless("application/json", http.StatusOK, object+`},"status":{"conditions":[{}`, ",{}"),
		"owners":     endless("application/json", http.StatusOK, object+`,"ownerReferences":[{}`, ",{}"),
		"depth":      endless("application/json", http.StatusOK, object+`,"a":[`, "["),
		"an error":   endless("application/json", http.StatusBadRequest, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`, "a"),
		"causes":     endless("application/json", http.StatusBadRequest, `{"kind":"Status","apiVersion":"v1","status":"Failure","details":{"causes":[{}`, ",{}"),
		"a page":     endless("text/html", http.StatusBadGateway, "<html>", "a"),
		"YAML":       endless("application/yaml", http.StatusOK, "kind: CertificateSigningRequest\na: [", "[],"),
		"protobuf":   endless("application/vnd.kubernetes.protobuf", http.StatusOK, "k8s\x00", "\x0a\x00"),
		"CBOR":       endless("application/cbor", http.StatusOK, "\xd9\xd9\xf7\x9f", "\xa0"),
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("a", 1<<20))
			answer(w, http.StatusOK, request("a"))
		},
		"no known kind": endless("a;b", http.StatusOK, "", "a"),
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, newServer(t, reply).config(), nil)
			for call, do := range map[string]func() error{
				"get":    func() error { _, err := c.get(t.Context(), request("a")); return err },
				"create": func() error { _, err := c.Create(t.Context(), filed()); return err },
				"watch":  func() error { _, err := watched(t, c, request("a")); return err },
			} {
				var before, after goruntime.MemStats
				goruntime.ReadMemStats(&before)
				err := do()
				goruntime.ReadMemStats(&after)
				if err == nil || len(err.Error()) > 1000 {
					t.Errorf("%s: got %.1000v", call, err)
				}
				if took := after.TotalAlloc - before.TotalAlloc; took > most {
					t.Errorf("%s: %d KiB were allocated for it", call, took>>10)
				}
			}
		})
	}
}

// TestOnlyJSON: a form is not decoded whose memory is not bounded by its values.
func TestOnlyJSON(t *testing.T) {
	t.Parallel()
	kind, text := "", ""
	c := connect(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}).config(), nil)
	const object = `{"kind":"CertificateSigningRequest","apiVersion":"certificates.k8s.io/v1","metadata":{"name":"a","uid":"uid"}}`
	protobuf, err := request("a").Marshal()
	if err == nil {
		protobuf, err = (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}, Raw: protobuf}).Marshal()
	}
	if err != nil {
		t.Fatal(err)
	}
	for k, row := range map[string]struct {
		text string
		ok   bool
	}{
		"application/json":                    {object, true},
		"Application/JSON; charset=utf-8":     {object, true},
		"application/yaml":                    {object, false},
		"application/vnd.kubernetes.protobuf": {"k8s\x00" + string(protobuf), false},
		"text/plain":                          {object, false},
		"a;b":                                 {object, false},
	} {
		t.Run(k, func(t *testing.T) {
			kind, text = k, row.text
			if got, err := c.get(t.Context(), request("a")); (err == nil) != row.ok {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// TestBoundsOfValues: a response of few bytes can still take too much memory.
func TestBoundsOfValues(t *testing.T) {
	t.Parallel()
	many := 0
	c := connect(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"CertificateSigningRequest","apiVersion":"certificates.k8s.io/v1","metadata":{"name":"a","uid":"uid"},"status":{"conditions":[{}`+strings.Repeat(",{}", many)+`]}}`)
	}).config(), nil)
	for n, within := range map[int]bool{100: true, maxValues - 100: true, maxValues: false, maxAnswer / 4: false} {
		many = n
		got, err := c.get(t.Context(), request("a"))
		if within && (err != nil || len(got.Status.Conditions) != n+1) || !within && !errors.Is(err, CheckAnswer) {
			t.Errorf("%d values: got %v", n, err)
		}
	}
}

// TestLongRequest: the longest request that there is comes back whole.
func TestLongRequest(t *testing.T) {
	t.Parallel()
	o := request("a")
	o.Spec.Request = bytes.Repeat([]byte("a"), 128<<10) // 64 KiB of DER in PEM
	o.Status.Certificate = bytes.Repeat([]byte("a"), 256<<10)
	c := connect(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, o) }).config(), nil)
	if got, err := c.get(t.Context(), o); err != nil || len(got.Spec.Request) != len(o.Spec.Request) {
		t.Error(err)
	}
}

// TestWatchEnds: events without end, none of which decides, end a watch.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	watches := 0
	c := connect(t, newServer(t, func(w http.ResponseWriter, r *http.Request) {
		watches++
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil {
			event(w, "MODIFIED", request("a"))
		}
	}).config(), nil)
	if n, err := watched(t, c, request("a")); !strings.Contains(err.Error(), string(CheckAnswer)) || n < 100 || n > maxAnswer/100 || watches != 1 {
		t.Errorf("%d events of %d watches, then %v", n, watches, err)
	}
}

// TestRedirect: none is followed, neither without TLS nor to the server itself.
func TestRedirect(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer plain.Close()
	to := ""
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			elsewhere.Add(1)
		}
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	})
	c := connect(t, s.config(), nil)
	for _, to = range []string{plain.URL, s.URL + "/elsewhere", "/elsewhere"} {
		_, created := c.Create(t.Context(), filed())
		_, got := c.get(t.Context(), request("a"))
		_, seen := watched(t, c, request("a"))
		for _, err := range []error{created, got, seen} {
			if !errors.Is(err, CheckAnswer) {
				t.Errorf("to %s: got %v", to, err)
			}
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d were followed", n)
	}
}

// TestDial: a configuration's own way to connect is used, and closed like any other. Its panic is the
// error of one call.
func TestDial(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, request("a")) })
	config := s.config()
	config.Host = "https://example.com"
	var panics atomic.Bool
	panics.Store(true)
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		if panics.Load() {
			panic("a bug of the dialler")
		}
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}
	c := connect(t, config, nil)
	if _, err := c.get(t.Context(), request("a")); err == nil {
		t.Error("no error after a panic")
	}
	panics.Store(false)
	if _, err := c.get(t.Context(), request("a")); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the end of the connection", func() bool { return s.open.Load() == 0 })
}

// stuckBalancer forwards connections until it is frozen: then it swallows what comes, while its
// kernel goes on acknowledging, so that neither TCP's keepalive nor a retransmission finds out.
func stuckBalancer(t *testing.T, to string) (address string, frozen *atomic.Bool) {
	t.Helper()
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	frozen = new(atomic.Bool)
	pump := func(into, from net.Conn) {
		b := make([]byte, 4096)
		for {
			n, err := from.Read(b)
			if err != nil {
				_ = into.Close()
				return
			}
			if !frozen.Load() {
				_, _ = into.Write(b[:n])
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			go pump(server, client)
			go pump(client, server)
		}
	}()
	return listener.Addr().String(), frozen
}

// TestStuckBalancer: behind a balancer that has died quietly, a watch ends by HTTP/2's pings,
// which come after 30 s and are waited for for 15 s by default; here after 1 s each.
func TestStuckBalancer(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		event(w, "MODIFIED", request("a"))
		<-r.Context().Done()
	})
	for name, open := range map[string]func(*rest.Config) *Client{
		"token":      func(c *rest.Config) *Client { return connect(t, c, nil) },
		"sealed key": func(c *rest.Config) *Client { return connect(t, rest.AnonymousClientConfig(c), sealed(t, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			address, frozen := stuckBalancer(t, s.Listener.Addr().String())
			config := s.config()
			config.Host, config.ServerName = "https://"+address, "example.com"
			c := open(config)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that it fails rather than hangs
			defer cancel()
			seen := 0
			_, _ = c.follow(ctx, request("a"), func(*certificatesv1.CertificateSigningRequest) bool {
				seen++
				frozen.Store(true)
				return false
			})
			if ctx.Err() != nil || seen == 0 {
				t.Errorf("after %d events the watch has not noticed that the client is gone", seen)
			}
		})
	}
}
