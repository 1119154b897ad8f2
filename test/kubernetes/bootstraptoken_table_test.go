package kubernetes

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/secret"
)

// TestBootstrapTokenCases changes one thing of a good Secret. Each case is compared with every
// reader of Kubernetes too.
func TestBootstrapTokenCases(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	set := func(key, value string) func(*bootstraptoken.Object) {
		return func(o *bootstraptoken.Object) { o.Data.Reveal()[key] = []byte(value) }
	}
	for _, tt := range []struct {
		name   string
		change func(*bootstraptoken.Object)
		want   bootstraptoken.Check // "" where the bearer is let in
	}{
		{"good", func(*bootstraptoken.Object) {}, ""},
		{"ends in a second", func(o *bootstraptoken.Object) { set("expiration", in(time.Second))(o) }, ""},
		{"ends now", func(o *bootstraptoken.Object) { set("expiration", in(0))(o) }, bootstraptoken.Check("bootstrap-token-expired")},
		{"ended", func(o *bootstraptoken.Object) { set("expiration", in(-time.Hour))(o) }, bootstraptoken.Check("bootstrap-token-expired")},
		{"expiration no time", set("expiration", "tomorrow"), bootstraptoken.Check("bootstrap-token-expiration")},
		{"expiration empty", set("expiration", ""), bootstraptoken.Check("bootstrap-token-expiration")},
		{"hour of one digit", set("expiration", "2999-01-01T1:00:00Z"), bootstraptoken.Check("bootstrap-token-expiration")},
		{"may not authenticate", set("usage-bootstrap-authentication", "false"), bootstraptoken.Check("usage")},
		{"True", set("usage-bootstrap-authentication", "True"), bootstraptoken.Check("usage")},
		{"another usage misspelt", set("usage-bootstrap-signing", "yes"), bootstraptoken.Check("usage")},
		{"one group", set("auth-extra-groups", "system:bootstrappers:a"), ""},
		{"a group of masters", set("auth-extra-groups", "system:masters"), bootstraptoken.Check("auth-extra-groups")},
		{"a space between groups", set("auth-extra-groups", "system:bootstrappers:a, system:bootstrappers:b"), bootstraptoken.Check("auth-extra-groups")},
		{"auth-groups", set("auth-groups", "system:bootstrappers:a"), ""},
		{"a usage of k0s", set("usage-bootstrap-api-worker-calls", "true"), ""},
		{"a known key in capitals", set("Expiration", "2999-01-01T00:00:00Z"), bootstraptoken.Check("unknown-key")},
		{"another ID inside", set("token-id", "zzzzzz"), bootstraptoken.Check("bootstrap-token-id")},
		{"another secret", set("token-secret", "fedcba9876543210"), bootstraptoken.Check("credential")},
		{"no secret", set("token-secret", ""), bootstraptoken.Check("credential")},
		{"being deleted", func(o *bootstraptoken.Object) { o.Deleted = new(time.Time) }, bootstraptoken.Check("deleted")},
		{"opaque", func(o *bootstraptoken.Object) { o.Type = "Opaque" }, bootstraptoken.Check("type")},
		{"another namespace", func(o *bootstraptoken.Object) { o.Namespace = "default" }, bootstraptoken.Check("credential")},
		{"no data", func(o *bootstraptoken.Object) { o.Data = secret.Value[map[string][]byte]{} }, bootstraptoken.Check("credential")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := tokenObject()
				tt.change(o)
				bearer := tokenID + "." + tokenSecret
				compare(t, o, bearer)
				_, err := bootstraptoken.Authenticate(t.Context(), bearer, getter(o), time.Now())
				if (err == nil) != (tt.want == "") || err != nil && !errors.Is(err, tt.want) {
					t.Errorf("got %v, want the check %q", err, string(tt.want))
				}
			})
		})
	}
}
