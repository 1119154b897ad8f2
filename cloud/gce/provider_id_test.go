package gce_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/refusal"
)

// The machine and its token say the same.
func TestProviderID(t *testing.T) {
	cloud := google(t)
	server := cloud.Serve(instance(1))
	defer server.Close()
	server.Fail(http.StatusServiceUnavailable, 1)
	got, err := newSource(t, server.URL, 0).ProviderID(t.Context())
	if want := (&gce.Details{Instance: instance(1)}).ProviderID(); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// An impossible answer of a metadata server is refused by its path, and a server that is away
// is asked again: neither is a machine without a provider ID.
func TestProviderIDRefusals(t *testing.T) {
	const zone = "instance/zone"
	for name, c := range map[string]struct {
		path, body string // other answers are good
		ok, retry  bool
	}{
		"a domain's project":     {"project/project-id", "example.com:example-project", true, false},
		"no project":             {"project/project-id", "", false, false},
		"a project with a slash": {"project/project-id", "example-project/europe-west1-b", false, false},
		"a project's number":     {"project/project-id", "123456789012", false, false},
		"no zone":                {zone, "", false, false},
		"a zone alone":           {zone, "europe-west1-b", false, false},
		"a zone with a slash":    {zone, "projects/1/zones/europe-west1-b/vm-2", false, false},
		"a region":               {zone, "projects/1/regions/europe-west1", false, false},
		"no name":                {"instance/name", "", false, false},
		"a name in capitals":     {"instance/name", "VM-1", false, false},
		"a line's end":           {"instance/name", "vm-1\n", false, false},
		"a NUL":                  {"instance/name", "vm-1\x00", false, false},
		"an escape":              {"instance/name", "\x1b[2Jvm-1", false, false},
		"a long name":            {"instance/name", strings.Repeat("v", 64), false, false},
		"more than is read":      {"instance/name", strings.Repeat("v", 1<<10), false, false},
		"a page":                 {"instance/name", "<!DOCTYPE html>\n<html>\n", false, false},
		"away":                   {"instance/name", "away", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]string{"project/project-id": "example-project", zone: "projects/123456789012/zones/europe-west1-b", "instance/name": "vm-1"}
			answers[c.path] = c.body
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Metadata-Flavor", "Google")
				body := answers[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")]
				if body == "away" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				io.WriteString(w, body)
			}))
			defer server.Close()
			timeout := time.Duration(0)
			if c.retry { // it is asked until then
				timeout = 120 * time.Millisecond
			}
			got, err := newSource(t, server.URL, timeout).ProviderID(t.Context())
			if c.ok != (err == nil) || c.ok != (got != "") {
				t.Fatalf("got %q, %v", got, err)
			}
			if err == nil {
				return
			}
			if !errors.Is(err, metadata.CheckMetadata) || errors.Is(err, refusal.ErrRetry) != c.retry || strings.ContainsAny(err.Error(), "\x00\x1b\n") {
				t.Errorf("%q", err)
			}
			if named := strings.Contains(err.Error(), c.path); !named && !c.retry && len(c.body) <= gce.MaxAnswerSize {
				t.Errorf("%v does not name %s", err, c.path)
			}
		})
	}
}
