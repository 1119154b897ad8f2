package awsid_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestProviderID(t *testing.T) {
	server := ec2(t).Serve(machine())
	defer server.Close()
	server.Fail(http.StatusServiceUnavailable, 1)
	s, err := awsid.NewSource(awsid.SourceOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.ProviderID(t.Context()); err != nil || got != "aws:///"+machine().Region+"a/"+machine().InstanceID {
		t.Errorf("got %q, %v", got, err)
	}
}

// What no instance has is refused by its name, and a server that is away is asked again: neither is
// an instance without a provider ID.
func TestProviderIDRefusals(t *testing.T) {
	const instance = "i-0123456789abcdef0"
	for name, c := range map[string]struct {
		field, value string
		ok, retry    bool
	}{
		"a zone":                   {"availabilityZone", "eu-west-1b", true, false},
		"a local zone":             {"availabilityZone", "eu-west-1-lax-1a", true, false},
		"a short instance":         {"instanceId", "i-01234567", true, false},
		"no region":                {"region", "", false, false},
		"a region with a slash":    {"region", "eu-west-1/", false, false},
		"no zone":                  {"availabilityZone", "", false, false},
		"the region for a zone":    {"availabilityZone", "eu-west-1", false, false},
		"a zone of another region": {"availabilityZone", "us-east-1a", false, false},
		"a zone with a slash":      {"availabilityZone", "eu-west-1a/i-1", false, false},
		"a NUL":                    {"availabilityZone", "eu-west-1a\x00", false, false},
		"a line's end":             {"availabilityZone", "eu-west-1a\n", false, false},
		"a long zone":              {"availabilityZone", "eu-west-1" + strings.Repeat("a", 64), false, false},
		"no instance":              {"instanceId", "", false, false},
		"an instance in capitals":  {"instanceId", strings.ToUpper(instance), false, false},
		"an instance's name":       {"instanceId", "node-1", false, false},
		"no member":                {"", "", false, false},
		"more than is read":        {"imageId", strings.Repeat("a", 8<<10), false, false},
		"away":                     {"away", "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			document := map[string]string{"region": "eu-west-1", "availabilityZone": "eu-west-1a", "instanceId": instance}
			if document[c.field] = c.value; c.field == "" {
				clear(document)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case c.retry:
					w.WriteHeader(http.StatusServiceUnavailable)
				case r.Method == http.MethodPut:
					io.WriteString(w, "token")
				default:
					json.NewEncoder(w).Encode(document)
				}
			}))
			defer server.Close()
			timeout := time.Duration(0)
			if c.retry { // it is asked until then
				timeout = 120 * time.Millisecond
			}
			s, err := awsid.NewSource(awsid.SourceOptions{URL: server.URL, Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.ProviderID(t.Context())
			if c.ok != (err == nil) || c.ok != (got != "") {
				t.Fatalf("got %q, %v", got, err)
			}
			if err != nil && (!errors.Is(err, metadata.CheckMetadata) || errors.Is(err, refusal.ErrRetry) != c.retry || strings.ContainsAny(err.Error(), "\x00\n")) {
				t.Errorf("%q", err)
			}
			if err != nil && document[c.field] == c.value && c.field != "imageId" && c.field != "" && !c.retry && !strings.Contains(err.Error(), c.field) {
				t.Errorf("%v does not name %s", err, c.field)
			}
		})
	}
}
