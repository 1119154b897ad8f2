package ec2

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestProviderID(t *testing.T) {
	l := newLab(t)
	m := machine("machine-0")
	server := l.cloud.Serve(m)
	defer server.Close()
	server.Fail(http.StatusServiceUnavailable, 1)
	s := testkit.Must(NewSource(SourceOptions{URL: server.URL}))
	if got, err := s.ProviderID(t.Context()); err != nil || got != "aws:///"+m.Region+"a/"+m.InstanceID {
		t.Errorf("got %q, %v", got, err)
	}
}

// What no instance has is refused by its name, and a server that is away is asked again: neither is
// an instance without a provider ID.
func TestProviderIDRefusals(t *testing.T) {
	const claims refusal.Check = "awsid-claims"
	l := newLab(t)
	region := machine("machine-0").Region
	for name, c := range map[string]struct {
		field, value string
		want         refusal.Check // "": it is accepted
		retry        bool
	}{
		"a zone":                   {field: "availabilityZone", value: region + "b"},
		"a local zone":             {field: "availabilityZone", value: region + "-lax-1a"},
		"a short instance":         {field: "instanceId", value: "i-01234567"},
		"no region":                {field: "region", want: claims},
		"a region with a slash":    {field: "region", value: region + "/", want: claims},
		"no zone":                  {field: "availabilityZone", want: metadata.CheckMetadata},
		"the region for a zone":    {field: "availabilityZone", value: region, want: metadata.CheckMetadata},
		"a zone of another region": {field: "availabilityZone", value: "us-east-1a", want: metadata.CheckMetadata},
		"a zone with a slash":      {field: "availabilityZone", value: region + "a/i-1", want: metadata.CheckMetadata},
		"a NUL":                    {field: "availabilityZone", value: region + "a\x00", want: metadata.CheckMetadata},
		"a line's end":             {field: "availabilityZone", value: region + "a\n", want: metadata.CheckMetadata},
		"a long zone":              {field: "availabilityZone", value: region + strings.Repeat("a", 64), want: metadata.CheckMetadata},
		"no instance":              {field: "instanceId", want: claims},
		"an instance in capitals":  {field: "instanceId", value: "I-0123456789ABCDEF0", want: claims},
		"an instance's name":       {field: "instanceId", value: "node-1", want: claims},
		"away":                     {want: metadata.CheckMetadata, retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			document := map[string]string{"accountId": "123456789012", "region": region, "availabilityZone": region + "a",
				"instanceId": "i-0123456789abcdef0", "pendingTime": "2026-01-01T00:00:00Z"}
			if c.field != "" {
				document[c.field] = c.value
			}
			text := testkit.Must(json.Marshal(document))
			signed := testkit.Must(l.cloud.Sign(region, text, testTime))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case c.retry:
					w.WriteHeader(http.StatusServiceUnavailable)
				case r.Method == http.MethodPut:
					io.WriteString(w, "token")
				default:
					io.WriteString(w, base64.StdEncoding.EncodeToString(signed))
				}
			}))
			defer server.Close()
			options := SourceOptions{URL: server.URL}
			if c.retry { // it is asked until then
				options.Timeout = 120 * time.Millisecond
			}
			s := testkit.Must(NewSource(options))
			got, err := s.ProviderID(t.Context())
			if c.want == "" {
				if err != nil || got == "" {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if got != "" || !errors.Is(err, c.want) || errors.Is(err, refusal.ErrRetry) != c.retry || strings.ContainsAny(err.Error(), "\x00\n") || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%q, %q", got, err)
			}
		})
	}
}
