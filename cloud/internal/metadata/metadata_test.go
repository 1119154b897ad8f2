package metadata_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/refusal"
)

func client(t *testing.T, url string, timeout time.Duration) *metadata.Client {
	t.Helper()
	c, err := metadata.New(url, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func server(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func TestNew(t *testing.T) {
	for _, url := range []string{"https://h", "http://", "http://h/", "http://h/p", "http://u@h", "http://h?q", "http://h#f", "h", "http://h:port", "HTTP://h", ":"} {
		if c, err := metadata.New(url, 0); !errors.Is(err, refusal.CheckConfig) || c != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := metadata.New("", -1); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
	for _, url := range []string{"http://169.254.169.254", "http://[fd00:ec2::254]", "http://127.0.0.1:80"} {
		if _, err := metadata.New(url, 0); err != nil {
			t.Error(err)
		}
	}
}

// Bad answers, and whether a later one may be good.
func TestDo(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		retry  bool
		want   string
	}{
		"good":            {func(w http.ResponseWriter) { io.WriteString(w, "0123456789") }, false, "0123456789"},
		"a byte too long": {func(w http.ResponseWriter) { io.WriteString(w, "0123456789a") }, false, ""},
		"another flavour": {func(w http.ResponseWriter) { w.Header().Set("Flavor", "b") }, false, ""},
		"forbidden":       {func(w http.ResponseWriter) { w.WriteHeader(403) }, false, ""},
		"not found":       {func(w http.ResponseWriter) { w.WriteHeader(404) }, false, ""},
		"no content":      {func(w http.ResponseWriter) { w.WriteHeader(204) }, false, ""},
		"a redirect":      {func(w http.ResponseWriter) { w.Header().Set("Location", "/other"); w.WriteHeader(302) }, false, ""},
		"gone":            {func(w http.ResponseWriter) { w.WriteHeader(410) }, false, ""},
		"gone, to return": {func(w http.ResponseWriter) { w.WriteHeader(444) }, true, ""},
		"too many":        {func(w http.ResponseWriter) { w.WriteHeader(429) }, true, ""},
		"too slow":        {func(w http.ResponseWriter) { w.WriteHeader(408) }, true, ""},
		"407":             {func(w http.ResponseWriter) { w.WriteHeader(407) }, false, ""},
		"409":             {func(w http.ResponseWriter) { w.WriteHeader(409) }, false, ""},
		"499":             {func(w http.ResponseWriter) { w.WriteHeader(499) }, false, ""},
		"500":             {func(w http.ResponseWriter) { w.WriteHeader(500) }, true, ""},
		"out of order":    {func(w http.ResponseWriter) { w.WriteHeader(503) }, true, ""},
		"cut off":         {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "9"); io.WriteString(w, "1") }, true, ""},
		"a huge header":   {func(w http.ResponseWriter) { w.Header().Set("X", strings.Repeat("x", 32<<10)) }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := 0
			url := server(t, func(w http.ResponseWriter, r *http.Request) {
				if asked++; asked == 2 {
					cancel() // it would go on for as long as its timeout lets it
				}
				if r.URL.Path != "/p" || r.Header.Get("Ask") != "x" {
					t.Errorf("%s, %v", r.URL, r.Header)
				}
				w.Header().Set("Flavor", "a")
				c.answer(w)
			})
			body, err := client(t, url, 0).Do(ctx,
				metadata.Request{Path: "/p", MaxSize: 10, Header: map[string]string{"Ask": "x"}, Answer: "Flavor", Value: "a", Again: []int{444}})
			if string(body) != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, metadata.CheckMetadata) {
				t.Errorf("%q, %v", body, err)
			}
			if errors.Is(err, refusal.ErrRetry) != c.retry || (asked > 1) != c.retry {
				t.Errorf("asked %d times: %v", asked, err)
			}
		})
	}
}

// once is a server that answers one request, and the context that ends with the second.
func once(t *testing.T, answer http.HandlerFunc) (context.Context, string) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	asked := 0
	return ctx, server(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 2 {
			cancel()
		}
		answer(w, r)
	})
}

// The error names the missing part of the machine for each status, and without an answer. An answer of
// another cloud's server says nothing about the machine.
func TestWants(t *testing.T) {
	wants := map[int]string{0: "power", 404: "an account", 503: "patience"}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
		status int
	}{
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "want power", 0},
		"not found": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Flavor", "a")
			http.Error(w, "page", 404)
		}, "want an account", 404},
		"by another":    {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "page", 404) }, "another server", 0},
		"busy":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "want patience", 503},
		"of no cause":   {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Flavor", "a"); w.WriteHeader(400) }, "want status 200", 400},
		"a good answer": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Flavor", "a") }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, url := once(t, c.answer)
			_, err := client(t, url, 0).Do(ctx, metadata.Request{Path: "/", MaxSize: 10, Answer: "Flavor", Value: "a", Wants: wants})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			if status, _ := metadata.StatusOf(err); status != c.status {
				t.Errorf("status %d of %v", status, err)
			}
		})
	}
}

// A server that is out of order for a while is asked again.
func TestRetry(t *testing.T) {
	s := cloudtest.NewEC2(t, "us-east-1").Serve(cloudtest.EC2Machine{Region: "us-east-1", InstanceID: "i-1"})
	defer s.Close()
	s.Fail(503, 2)
	got, err := client(t, s.URL, 0).EC2(t.Context(), "/latest/meta-data/instance-id", 100)
	if err != nil || string(got) != "i-1" || len(s.Requests()) != 4 {
		t.Errorf("%q, %v, %q", got, err, s.Requests())
	}
	s.Fail(403, 1) // the token: nothing else is asked without one
	asked := len(s.Requests())
	if _, err := client(t, s.URL, 0).EC2(t.Context(), "/latest/meta-data/instance-id", 100); !errors.Is(err, metadata.CheckMetadata) || errors.Is(err, refusal.ErrRetry) || len(s.Requests()) != asked+1 {
		t.Errorf("%v, %q", err, s.Requests()[asked:])
	}
}

// Who asks may stop asking, whatever the server does.
func TestContext(t *testing.T) {
	release := make(chan struct{})
	url := server(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := client(t, url, 0).Do(ctx, metadata.Request{Path: "/"})
	if !errors.Is(err, metadata.CheckMetadata) || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := client(t, url, 20*time.Millisecond).Do(t.Context(), metadata.Request{Path: "/"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// No proxy is asked: it would see secrets, and servers refuse requests from one.
func TestNoProxy(t *testing.T) {
	proxy := server(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	t.Setenv("HTTP_PROXY", proxy)
	t.Setenv("http_proxy", proxy)
	t.Setenv("NO_PROXY", "")
	_, err := client(t, "http://metadata.invalid", 50*time.Millisecond).Do(t.Context(), metadata.Request{Path: "/"})
	if !errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
	if strings.Contains(err.Error(), "http://") {
		t.Errorf("the URL is in %v", err)
	}
}
