package apiserver

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// hookObjects are the world's, and webhook configurations.
type hookObjects struct {
	*worldObjects
	hooks claims.MemoryObjects
}

func (o *hookObjects) Get(ctx context.Context, resource, namespace, name string) (*claims.Object, error) {
	if strings.HasSuffix(resource, "webhookconfigurations") {
		return o.hooks.Get(ctx, resource, namespace, name)
	}
	return o.worldObjects.Get(ctx, resource, namespace, name)
}

// TestReleases: the token of an admission webhook is decided on as each API server does.
func TestReleases(t *testing.T) {
	const gateOff = `feature gate "APIServerWebhookAuthenticationToken" is disabled, but token is webhook bound`
	const gone, missing = "service account token has been invalidated", `bound object was a webhook config, but "admissionReviewAPIGroups" attestation is missing`
	put := func(uid string, deleted time.Duration) func(*world, *hookObjects) {
		return func(w *world, o *hookObjects) {
			object := claims.Object{Name: "hook", UID: uid}
			if deleted > 0 {
				object.Deleted = w.ago(deleted)
			}
			o.hooks.Put("validatingwebhookconfigurations", object)
			o.hooks.Put("mutatingwebhookconfigurations", object)
		}
	}
	for _, tt := range []struct {
		name, private string
		change        func(*world, *hookObjects)
		on, off       string // the message with and without the gate; 1.36 accepts
	}{
		{"there", `"attestations":{"admissionReviewAPIGroups":["apps"]},"validatingwebhookconfiguration":{"name":"hook","uid":"u"},`, put("u", 0), "", gateOff},
		{"both", `"attestations":{"admissionReviewAPIGroups":["*"],"x":null},"mutatingwebhookconfiguration":{"name":"hook","uid":"u"},"validatingwebhookconfiguration":{"name":"hook","uid":"u"},`, put("u", 0), "", gateOff},
		{"unknown members", `"x":{},"attestations":{"admissionReviewAPIGroups":["apps", null]},"mutatingwebhookconfiguration":{"name":"hook","uid":"u","y":1},`, put("u", time.Minute), "", gateOff},
		{"gone", `"attestations":{"admissionReviewAPIGroups":["apps"]},"mutatingwebhookconfiguration":{"name":"hook","uid":"u"},`, nil, gone, gateOff},
		{"deleted", `"attestations":{"admissionReviewAPIGroups":["apps"]},"mutatingwebhookconfiguration":{"name":"hook","uid":"u"},`, put("u", time.Minute+1), gone, gateOff},
		{"made again", `"attestations":{"admissionReviewAPIGroups":["apps"]},"validatingwebhookconfiguration":{"name":"hook","uid":"v"},`, put("u", 0),
			"ValidatingWebhookConfiguration UID (u) does not match service account validating ref claim (v)", gateOff},
		{"the other made again", `"attestations":{"admissionReviewAPIGroups":["apps"]},"mutatingwebhookconfiguration":{"name":"hook","uid":"v"},`, put("u", 0),
			"MutatingWebhookConfiguration UID (u) does not match service account validating ref claim (v)", gateOff},
		{"without attestations", `"validatingwebhookconfiguration":{"name":"hook","uid":"u"},`, put("u", 0), missing, gateOff},
		{"without a group", `"attestations":{"admissionReviewAPIGroups":[]},"validatingwebhookconfiguration":{"name":"hook","uid":"u"},`, put("u", 0), missing, gateOff},
		{"attestations alone", `"attestations":{"admissionReviewAPIGroups":["apps"]},`, nil, "", ""},
		{"null", `"attestations":null,"validatingwebhookconfiguration":null,`, nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.bind()
			objects := &hookObjects{worldObjects: w.objects}
			if tt.change != nil {
				tt.change(w, objects)
			}
			payload, err := w.claims.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			token := w.sign(t, []byte(strings.Replace(string(payload), `"kubernetes.io":{`, `"kubernetes.io":{`+tt.private, 1)))
			for release, want := range map[Release]string{Kubernetes136: "", Kubernetes137: tt.off, Kubernetes137WebhookTokens: tt.on} {
				config := w.kubernetesConfig()
				config.Release, config.Objects = release, objects
				r, err := w.kubernetesWith(t, config).Validate(t.Context(), token)
				if got := errorText(err); got != want {
					t.Errorf("release %d: got %q, want %q", release, got, want)
				}
				if err == nil && release == Kubernetes136 && (len(r.Extra()) != 1 || r.Claims.Kubernetes.Attestations != nil) {
					t.Errorf("1.36 knows %v", r.Extra())
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestReleaseDecodes: what 1.37 knows must have its type there, and 1.36 does not look.
func TestReleaseDecodes(t *testing.T) {
	for _, private := range []string{`"attestations":[]`, `"attestations":{"x":"y"}`, `"attestations":{"x":[1]}`, `"attestations":{"x":[],"x":[]}`,
		`"mutatingwebhookconfiguration":7`, `"validatingwebhookconfiguration":{"uid":1}`} {
		payload := []byte(`{"kubernetes.io":{` + private + `}}`)
		if c, _, err := parseClaims(payload, Kubernetes137); err == nil {
			t.Errorf("%s: 1.37 reads %+v", payload, c)
		}
		if c, _, err := parseClaims(payload, Kubernetes136); err != nil || !reflect.DeepEqual(c, &claims.Claims{}) {
			t.Errorf("%s: 1.36 reads %+v, %v", payload, c, err)
		}
	}
}

func TestNewValidatorOfRelease(t *testing.T) {
	config := newWorld(t).kubernetesConfig()
	config.Release = Kubernetes136 + 1
	if _, err := NewValidator(config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("an unknown release: %v", err)
	}
}
