package fetch_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/fetch"
)

// get asks a server that answers with this function, at a path and query.
func get(t *testing.T, limits fetch.Limits, answer http.HandlerFunc) (*http.Response, error) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	response, err := fetch.Do(t.Context(), limits.Client(limits.Transport(nil)), http.MethodPut, server.URL+"/path?secret", map[string]string{"Ask": "x"})
	if err != nil && (response != nil || strings.Contains(err.Error(), "secret") || errors.As(err, new(*url.Error))) {
		t.Errorf("got %v, %v", response, err)
	}
	if err == nil {
		t.Cleanup(func() { response.Body.Close() })
	}
	return response, err
}

func TestLimits(t *testing.T) {
	redirect := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }
	response, err := get(t, fetch.Limits{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || r.URL.String() != "/path?secret" || r.Header.Get("Ask") != "x" || r.Header.Get("Accept-Encoding") != "" || !r.Close {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		io.WriteString(w, "12345")
	})
	if err != nil {
		t.Fatal(err)
	}
	if body, more, err := fetch.Body(response, 5); string(body) != "12345" || more || err != nil {
		t.Errorf("%q, %v, %v", body, more, err)
	}
	if response, err := get(t, fetch.Limits{}, redirect); err != nil || response.StatusCode != http.StatusFound {
		t.Errorf("without a rule: %v, %v", response, err)
	}
	refused := errors.New("refused")
	if _, err := get(t, fetch.Limits{Redirect: func(*http.Request, []*http.Request) error { return refused }}, redirect); !errors.Is(err, refused) {
		t.Errorf("with a rule: %v", err)
	}
	for _, limit := range []int64{4 << 10, 0} {
		large := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 128<<10)) }
		if _, err := get(t, fetch.Limits{Header: limit}, large); err == nil {
			t.Errorf("a header over %d bytes", limit)
		}
	}
	slow := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	if _, err := get(t, fetch.Limits{Timeout: 20 * time.Millisecond}, slow); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow server: %v", err)
	}
	if _, err := fetch.Do(t.Context(), http.DefaultClient, http.MethodGet, "http://\x00secret", nil); !errors.Is(err, fetch.ErrRequest) { //nolint:bodyclose // no response
		t.Errorf("a bad URL: %v", err)
	}
}

type transport func() (*http.Response, error)

func (f transport) RoundTrip(*http.Request) (*http.Response, error) { return f() }

type body func() (int, error)

func (f body) Read([]byte) (int, error) { return f() }

// Panics of a transport, before and after it has returned a response, are errors.
func TestPanics(t *testing.T) {
	limits := fetch.Limits{}
	client := limits.Client(transport(func() (*http.Response, error) { panic("in the transport") }))
	if _, err := fetch.Do(t.Context(), client, http.MethodGet, "http://host", nil); err == nil || !strings.Contains(err.Error(), "in the transport") { //nolint:bodyclose // no response
		t.Errorf("got %v", err)
	}
	for want, read := range map[string]body{"in the body": func() (int, error) { panic("in the body") }, "cut": func() (int, error) { return 0, errors.New("cut") }} {
		if _, _, err := fetch.Body(&http.Response{Body: io.NopCloser(read)}, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if got, more, err := fetch.Body(&http.Response{Body: io.NopCloser(strings.NewReader("123"))}, 1); string(got) != "12" || !more || err != nil {
		t.Errorf("got %q, %v, %v", got, more, err)
	}
}
