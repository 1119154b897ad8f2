package claims

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

const validatingWebhooks, mutatingWebhooks = "validatingwebhookconfigurations", "mutatingwebhookconfigurations"

// newHookWorld is a world with a token that kube-apiserver 1.37 presents to an admission webhook,
// and with the objects for it.
func newHookWorld(t testing.TB) (*world, *MemoryObjects) {
	t.Helper()
	w, objects := newWorld(t), &MemoryObjects{}
	w.bind() // to nothing else
	w.claims.Expiry = NewNumericDate(w.now.Add(10 * time.Minute))
	w.claims.Kubernetes.ValidatingWebhookConfiguration = &Ref{Name: "hook", UID: "hook-uid"}
	w.claims.Kubernetes.Attestations = &Attestations{AdmissionReviewAPIGroups: []string{"apps"}}
	objects.Put("serviceaccounts", *w.objects.account)
	objects.Put(validatingWebhooks, Object{Name: "hook", UID: "hook-uid"})
	return w, objects
}

func (w *world) validateHook(t testing.TB, objects Objects) (*Result, error) {
	t.Helper()
	config := w.strictConfig()
	config.Objects = objects
	return w.strictWith(t, config).Validate(testContext, w.token(t))
}

// TestWebhookToken: a webhook's author gets the API server's attestations, and the token has one
// encoding.
func TestWebhookToken(t *testing.T) {
	w, objects := newHookWorld(t)
	r, err := w.validateHook(t, objects)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"attestation.authentication.kubernetes.io/admissionReviewAPIGroups": {"apps"},
		"authentication.kubernetes.io/credential-id":                        {"JTI=" + w.claims.ID},
		"authentication.kubernetes.io/validatingwebhookconfiguration-name":  {"hook"},
		"authentication.kubernetes.io/validatingwebhookconfiguration-uid":   {"hook-uid"},
	}
	if got := r.Extra(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	payload := w.payload(t)
	const member = `"kubernetes.io":{"attestations":{"admissionReviewAPIGroups":["apps"]},"namespace":"ns",` +
		`"serviceaccount":{"name":"app","uid":"app-uid"},"validatingwebhookconfiguration":{"name":"hook","uid":"hook-uid"}}`
	if !strings.Contains(string(payload), member) {
		t.Errorf("%s has no %s", payload, member)
	}
	if c, err := Parse(payload); err != nil || !reflect.DeepEqual(c, w.claims) {
		t.Errorf("parsed %+v, %v", c, err)
	}
	config := w.strictConfig()
	config.Objects, config.InsecureSkipObjects, config.Node = nil, true, NodeCheck{}
	if _, err := w.strictWith(t, config).Validate(testContext, w.token(t)); err != nil {
		t.Errorf("without objects: %v", err)
	}
	w.claims.Kubernetes.MutatingWebhookConfiguration, w.claims.Kubernetes.ValidatingWebhookConfiguration = &Ref{Name: "hook", UID: "m"}, nil
	objects.Put(mutatingWebhooks, Object{Name: "hook", UID: "m"})
	w.claims.Kubernetes.Attestations.AdmissionReviewAPIGroups[0] = "*"
	if r, err = w.validateHook(t, objects); err != nil {
		t.Fatal(err)
	}
	if keys := slices.Sorted(maps.Keys(r.Extra())); !slices.Contains(keys, "authentication.kubernetes.io/mutatingwebhookconfiguration-uid") {
		t.Errorf("%v", keys)
	}
}

func TestWebhookTokenRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		want   Check
		change func(w *world, o *MemoryObjects)
	}{
		"gone": {"validating-webhook-configuration-gone", func(_ *world, o *MemoryObjects) { o.Delete(validatingWebhooks, "", "hook") }},
		"of the other kind": {"mutating-webhook-configuration-gone", func(w *world, _ *MemoryObjects) {
			k := &w.claims.Kubernetes
			k.MutatingWebhookConfiguration, k.ValidatingWebhookConfiguration = k.ValidatingWebhookConfiguration, nil
		}},
		"made again": {"validating-webhook-configuration-uid", func(_ *world, o *MemoryObjects) {
			o.Put(validatingWebhooks, Object{Name: "hook", UID: "another"})
		}},
		"deleted": {"validating-webhook-configuration-deleted", func(w *world, o *MemoryObjects) {
			o.Put(validatingWebhooks, Object{Name: "hook", UID: "hook-uid", Deleted: w.ago(time.Hour)})
		}},
		"of both kinds": {checkBinding, func(w *world, o *MemoryObjects) {
			w.claims.Kubernetes.MutatingWebhookConfiguration = &Ref{Name: "hook", UID: "hook-uid"}
			o.Put(mutatingWebhooks, Object{Name: "hook", UID: "hook-uid"})
		}},
		"and a Secret":     {checkBinding, func(w *world, _ *MemoryObjects) { w.claims.Kubernetes.Secret = &Ref{Name: "secret", UID: "secret-uid"} }},
		"nothing attested": {checkBinding, func(w *world, _ *MemoryObjects) { w.claims.Kubernetes.Attestations = nil }},
		"no group":         {checkBinding, func(w *world, _ *MemoryObjects) { w.claims.Kubernetes.Attestations.AdmissionReviewAPIGroups = nil }},
		"the core group":   {checkBinding, func(w *world, _ *MemoryObjects) { w.claims.Kubernetes.Attestations.AdmissionReviewAPIGroups[0] = "" }},
		"two groups": {checkBinding, func(w *world, _ *MemoryObjects) {
			w.claims.Kubernetes.Attestations.AdmissionReviewAPIGroups = []string{"a", "b"}
		}},
		"two audiences":           {checkBinding, func(w *world, _ *MemoryObjects) { w.claims.Audiences = append(w.claims.Audiences, "another") }},
		"a second too long":       {checkBinding, func(w *world, _ *MemoryObjects) { w.claims.Expiry.Unix++ }},
		"no webhook":              {checkBinding, func(w *world, _ *MemoryObjects) { w.claims.Kubernetes.ValidatingWebhookConfiguration = nil }},
		"a reference without UID": {checkPrivate, func(w *world, _ *MemoryObjects) { w.claims.Kubernetes.ValidatingWebhookConfiguration.UID = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			w, objects := newHookWorld(t)
			tt.change(w, objects)
			_, err := w.validateHook(t, objects)
			wantCheck(t, err, tt.want)
		})
	}
}

// A validator that can look up no webhook configuration refuses a token that is bound to one, and
// one that gets no answer does not decide.
func TestWebhookTokenWithoutAnswer(t *testing.T) {
	w, objects := newHookWorld(t)
	_, err := w.validateHook(t, w.objects)
	wantCheck(t, err, "validating-webhook-configuration-gone")
	_, err = w.validateHook(t, deadHooks{objects})
	if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, errDead) {
		t.Errorf("got %v, want %v", err, refusal.ErrRetry)
	}
	objects.Put(validatingWebhooks, Object{Name: "hook", UID: "hook-uid", AsOf: w.now.Add(-time.Minute)})
	if _, err := w.validateHook(t, objects); !errors.Is(err, checkStaleAnswer) {
		t.Errorf("got %v, want %v", err, checkStaleAnswer)
	}
}

// TestUnknownPrivateClaim: an unknown member of kubernetes.io, to which a later release may bind a
// token, is refused, and another unknown claim is skipped.
func TestUnknownPrivateClaim(t *testing.T) {
	w := newWorld(t)
	v := w.strict(t)
	validate := func(member string) error {
		payload := strings.Replace(string(w.payload(t)), `"kubernetes.io":{`, member, 1)
		_, err := v.Validate(testContext, w.sign(t, []byte(payload)))
		return err
	}
	wantCheck(t, validate(`"kubernetes.io":{"deviceclaim":{"name":"gone","uid":"u"},`), checkPrivate)
	if err := validate(`"deviceclaim":{"name":"gone"},"kubernetes.io":{`); err != nil {
		t.Error(err)
	}
}

// TestClaimsCheckNodeUID: a pod's node need not have existed when an API server signed; a node that
// the token is bound to must have. A validator wants the UID of either.
func TestClaimsCheckNodeUID(t *testing.T) {
	w := newWorld(t)
	w.claims.Kubernetes.Node.UID = ""
	if err := w.claims.Check(); err != nil {
		t.Error(err)
	}
	_, err := w.strict(t).Validate(testContext, w.token(t))
	wantCheck(t, err, checkPrivate)
	w.claims.Kubernetes.Pod = nil
	wantCheck(t, w.claims.Check(), checkPrivate)
}
