package gce_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func newSource(t *testing.T, url string, timeout time.Duration) *gce.Source {
	t.Helper()
	return testkit.Must(gce.NewSource(gce.SourceOptions{URL: url, Timeout: timeout}))
}

func TestSource(t *testing.T) {
	cloud := google(t)
	server := cloud.Serve(instance(1))
	defer server.Close()
	server.Fail(http.StatusServiceUnavailable, 1)
	s := newSource(t, server.URL, 0)
	machine, err := s.Machine(t.Context())
	if err != nil || machine != "gce:example-project/4711000000000000001" {
		t.Errorf("%q, %v", machine, err)
	}
	value := bytes.Repeat([]byte{0xfb}, 32) // its base64url is no base64
	token := testkit.Must(s.Document(t.Context(), value))
	if _, err := gce.VerifyToken(t.Context(), string(token), audienceOf(value), trust(t, cloud), now); err != nil {
		t.Error(err)
	}
	requests := server.Requests()
	last := requests[len(requests)-1]
	if want := "GET /computeMetadata/v1/instance/service-accounts/default/identity?format=full&audience=" + url.QueryEscape(audienceOf(value)); last != want {
		t.Errorf("got %s, want %s", last, want)
	}
	bearer := testkit.Must(s.Token(t.Context(), "https://example.com/?a=b&c d"))
	if _, err := gce.VerifyToken(t.Context(), bearer, "https://example.com/?a=b&c d", trust(t, cloud), now); err != nil {
		t.Error(err)
	}
}

// A machine that has no service account is told so, in whichever form the server answers.
func TestNoServiceAccount(t *testing.T) {
	for _, body := range []string{`{"error":"invalid_request"}`, "<!DOCTYPE html>\n<html lang=en>\n  <title>Error 404 (Not Found)!!1</title>\n"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			if !strings.HasSuffix(r.URL.Path, "/identity") {
				io.WriteString(w, "4711")
				return
			}
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, body)
		}))
		defer server.Close()
		s := newSource(t, server.URL, 0)
		if _, err := s.Document(t.Context(), make([]byte, 32)); !errors.Is(err, metadata.CheckMetadata) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "service account") {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

// Other servers than Google's, and servers with a wrong answer.
func TestSourceRefusals(t *testing.T) {
	cloud := google(t)
	value := make([]byte, 32)
	good := testkit.Must(cloud.Token(instance(1), audienceOf(value)))
	other := testkit.Must(cloud.Token(instance(1), audienceOf(bytes.Repeat([]byte{1}, 32))))
	claims := payload(t, good)
	delete(claims, "google")
	standard := testkit.Must(cloud.Sign(marshal(t, claims)))
	flavor := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			io.WriteString(w, body)
		}
	}
	halves := func(path, body string) http.HandlerFunc { // a server that knows one thing
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/computeMetadata/v1/"+path {
				http.NotFound(w, r)
				return
			}
			flavor(body)(w, r)
		}
	}
	for name, c := range map[string]struct {
		answer            http.HandlerFunc
		document, machine attest.Check
		retry             bool
	}{
		"another server's answer": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, good) }, metadata.CheckMetadata, metadata.CheckMetadata, false},
		"no service account":      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no\x1b", 404) }, metadata.CheckMetadata, metadata.CheckMetadata, false},
		"out of order":            {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, metadata.CheckMetadata, metadata.CheckMetadata, true},
		"a huge answer":           {flavor(strings.Repeat("7", gce.MaxTokenSize+1)), metadata.CheckMetadata, metadata.CheckMetadata, false},
		"nothing":                 {flavor(""), refusal.Check("gce-token-size"), attest.CheckIdentity, false},
		"no project alone":        {halves("instance/id", "4711"), metadata.CheckMetadata, metadata.CheckMetadata, false},
		"no instance alone":       {halves("project/project-id", "example-project"), metadata.CheckMetadata, metadata.CheckMetadata, false},
		"no number":               {flavor("p"), "form", attest.CheckIdentity, false},
		"a standard token":        {flavor(standard), refusal.Check("gce-machine"), metadata.CheckMetadata, false},
		"a token that was cached": {flavor(other), attest.CheckQualifyingData, metadata.CheckMetadata, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			timeout := time.Duration(0)
			if c.retry { // it is asked until then
				timeout = 120 * time.Millisecond
			}
			s := newSource(t, server.URL, timeout)
			token, err := s.Document(t.Context(), value)
			if token != nil || !errors.Is(err, c.document) || errors.Is(err, refusal.ErrRetry) != c.retry {
				t.Errorf("%q, %v", token, err)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("%q", err)
			}
			machine, err := s.Machine(t.Context())
			if machine != "" || !errors.Is(err, c.machine) || errors.Is(err, refusal.ErrRetry) != c.retry {
				t.Errorf("%q, %v", machine, err)
			}
		})
	}
}

func TestSourceConfig(t *testing.T) {
	for _, c := range []gce.SourceOptions{{URL: "metadata.google.internal"}, {URL: "http://h/computeMetadata"}, {Timeout: -1}} {
		s, err := gce.NewSource(c)
		if !errors.Is(err, refusal.CheckConfig) || s != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if p, again := gce.NewProver(c); !reflect.DeepEqual(again, err) || p != nil {
			t.Errorf("%+v: %v, want %v", c, again, err)
		}
	}
	p, err := gce.NewProver(gce.SourceOptions{})
	if err != nil || p.Provider() != "gce" {
		t.Error(err)
	}
	// Nothing is asked in a context that is over.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newSource(t, "", 0).Machine(ended); !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
}
