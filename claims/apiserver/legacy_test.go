package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/internal/alive"
)

// A legacyWorld is a world with one good legacy token: the Secret "secret" holds it.
type legacyWorld struct {
	*world
	held   func(token string) string // what the Secret holds
	labels map[string]string
	object claims.Object
	fail   map[string]error // by kind
}

func newLegacyWorld(t testing.TB) *legacyWorld {
	w := newWorld(t)
	w.claims = &claims.Claims{
		Issuer: claims.LegacyIssuer, Subject: "system:serviceaccount:ns:app",
		Legacy: &claims.LegacyPrivate{Namespace: "ns", ServiceAccountName: "app", ServiceAccountUID: "app-uid", SecretName: "secret"},
	}
	return &legacyWorld{
		world:  w,
		held:   func(token string) string { return token },
		object: *w.objects.secret,
		fail:   map[string]error{},
	}
}

func (w *legacyWorld) validate(t testing.TB, audiences ...string) (*claims.Result, error) {
	t.Helper()
	token := w.token(t)
	config := w.kubernetesConfig()
	config.Objects = legacyAccounts{w.objects, w}
	config.Legacy = legacyObjects{w, NewTokenSecret(w.object, []byte(w.held(token)), w.labels)}
	return w.kubernetesWith(t, config).Validate(t.Context(), token, audiences...)
}

type legacyObjects struct {
	*legacyWorld
	secret *TokenSecret
}

func (o legacyObjects) TokenSecret(_ context.Context, _, name string) (*TokenSecret, error) {
	if err := o.fail["secret"]; err != nil || name == "silent" {
		return nil, err
	}
	return o.secret, nil
}

// ReadsLive: the world is the API server.
func (legacyObjects) ReadsLive() {}

// legacyAccounts of a legacy world fails as it is told to.
type legacyAccounts struct {
	claims.LiveObjects
	w *legacyWorld
}

func (o legacyAccounts) ServiceAccount(ctx context.Context, namespace, name string) (*claims.Object, error) {
	if err := o.w.fail["account"]; err != nil || o.w.objects.account == nil {
		return nil, err
	}
	return o.LiveObjects.ServiceAccount(ctx, namespace, name)
}

func TestLegacyAccepts(t *testing.T) {
	w := newLegacyWorld(t)
	w.claims.ID = "an ID that no one reports"
	w.claims.Expiry = claims.NewNumericDate(w.now.Add(-time.Hour)) // nobody looks
	r, err := w.validate(t)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Legacy || r.Username() != "system:serviceaccount:ns:app" || r.UID() != "app-uid" || r.Extra() != nil {
		t.Errorf("%+v: user %s %s %v", r, r.Username(), r.UID(), r.Extra())
	}
	if want := []string{worldIssuer, worldAudience}; !slices.Equal(r.Audiences, want) {
		t.Errorf("audiences %q, want the API server's, %q", r.Audiences, want)
	}
	if _, err := w.validate(t, "another"); err == nil {
		t.Error("a legacy token is good for another audience than the API server's")
	}
	_, err = w.strict(t).Validate(t.Context(), w.token(t))
	wantCheck(t, err, claims.CheckIssuer)
}

func TestLegacyRefuses(t *testing.T) {
	const invalid = "Token has been invalidated"
	for _, tt := range []struct {
		name    string
		change  func(w *legacyWorld)
		check   Check
		message string
	}{
		{"no subject", func(w *legacyWorld) { w.claims.Subject = "" }, checkLegacyClaims, "sub claim is missing"},
		{"no private claims", func(w *legacyWorld) { w.claims.Legacy = nil }, checkLegacyClaims, "namespace claim is missing"},
		{"no namespace", func(w *legacyWorld) { w.claims.Legacy.Namespace = "" }, checkLegacyClaims, "namespace claim is missing"},
		{"no secret claim", func(w *legacyWorld) { w.claims.Legacy.SecretName = "" }, checkLegacyClaims, "secretName claim is missing"},
		{"no account claim", func(w *legacyWorld) { w.claims.Legacy.ServiceAccountName = "" }, checkLegacyClaims, "serviceAccountName claim is missing"},
		{"no UID claim", func(w *legacyWorld) { w.claims.Legacy.ServiceAccountUID = "" }, checkLegacyClaims, "serviceAccountUID claim is missing"},
		{"another subject", func(w *legacyWorld) { w.claims.Subject += "2" }, checkLegacyClaims, "sub claim is invalid"},
		{"a namespace that is none", func(w *legacyWorld) { w.rename("n.s", "app") }, checkLegacyClaims, "sub claim is invalid"},
		{"an account that is none", func(w *legacyWorld) { w.rename("ns", "App") }, checkLegacyClaims, "sub claim is invalid"},
		{"a colon more", func(w *legacyWorld) { w.rename("ns", "a:b") }, checkLegacyClaims, "sub claim is invalid"},
		{"no secret", func(w *legacyWorld) { w.fail["secret"] = claims.NewNotFound("secrets", "secret") }, claims.Check("secret-gone"), invalid},
		{"dead getter", func(w *legacyWorld) { w.fail["secret"] = errDead }, claims.Check("secret-gone"), invalid},
		{"silent getter", func(w *legacyWorld) { w.claims.Legacy.SecretName = "silent" }, claims.Check("secret-gone"), invalid},
		{"secret being deleted", func(w *legacyWorld) { w.object.Deleted = w.ago(-time.Hour) }, claims.Check("secret-deleted"), invalid},
		{"another token", func(w *legacyWorld) { w.held = func(token string) string { return token + "\n" } }, checkLegacyToken, "Token does not match server's copy"},
		{"no token", func(w *legacyWorld) { w.held = func(string) string { return "" } }, checkLegacyToken, "Token does not match server's copy"},
		{"no account", func(w *legacyWorld) { w.fail["account"] = claims.NewNotFound("serviceaccounts", "app") }, claims.Check("service-account-gone"), `serviceaccounts "app" not found`},
		{"silent about the account", func(w *legacyWorld) { w.objects.account = nil }, claims.Check("service-account-gone"), alive.ErrNoAnswer.Error()},
		{"account being deleted", func(w *legacyWorld) { w.objects.account.Deleted = w.ago(-time.Hour) }, claims.CheckServiceAccountDeleted, "ServiceAccount ns/app has been deleted"},
		{"account being deleted and another", func(w *legacyWorld) { w.objects.account.Deleted, w.objects.account.UID = w.ago(1), "other" }, claims.CheckServiceAccountDeleted, "ServiceAccount ns/app has been deleted"},
		{"account made again", func(w *legacyWorld) { w.objects.account.UID = "other" }, claims.CheckServiceAccountUID, "ServiceAccount UID (other) does not match claim (app-uid)"},
		{"marked as invalid", func(w *legacyWorld) { w.labels = map[string]string{labelInvalidSince: "2026-01-02"} }, checkLegacyInvalid,
			"the token in secret ns/secret for service account ns/app has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newLegacyWorld(t)
			tt.change(w)
			r, err := w.validate(t)
			refusedBy(t, r, err, tt.check, tt.message)
		})
	}
}

// rename changes the subject and the claims together.
func (w *legacyWorld) rename(namespace, name string) {
	w.claims.Subject = claims.MakeSubject(namespace, name)
	w.claims.Legacy.Namespace, w.claims.Legacy.ServiceAccountName = namespace, name
}

// TestLegacyIssuerTwice: where the legacy issuer is also that of bound tokens, both
// authenticators are asked, and both refusals reported.
func TestLegacyIssuerTwice(t *testing.T) {
	w := newLegacyWorld(t)
	bound := newWorld(t).claims
	bound.Issuer = claims.LegacyIssuer
	w.claims = bound
	config := w.kubernetesConfig()
	config.Issuers = []string{claims.LegacyIssuer}
	config.Legacy = legacyObjects{w, NewTokenSecret(w.object, nil, nil)}
	v := w.kubernetesWith(t, config)
	if r, err := v.Validate(t.Context(), w.token(t)); err != nil || r.Legacy {
		t.Errorf("a bound token: %v", err)
	}
	w.objects.pod = nil
	r, err := v.Validate(t.Context(), w.token(t))
	refusedBy(t, r, err, claims.CheckPodGone, "[namespace claim is missing, service account token has been invalidated]")
	w.claims.Audiences = []string{"x"}
	_, err = v.Validate(t.Context(), w.token(t))
	if err == nil || strings.HasPrefix(err.Error(), "[") {
		t.Errorf("one refusal twice: %v", err)
	}
}

func TestTokenSecretHidesToken(t *testing.T) {
	secret := NewTokenSecret(claims.Object{Name: "secret"}, []byte("the token"), nil)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, secret); strings.Contains(text, "the token") {
			t.Errorf("%s prints the token: %s", verb, text)
		}
	}
}
