package bootstraptoken

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestAuthenticate(t *testing.T) {
	user, err := Authenticate(t.Context(), testToken, getting(goodObject(t)), testNow)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{defaultGroup, nodeGroup, groupPrefix + "other"}
	if user.Name != "system:bootstrap:abcdef" || !slices.Equal(user.Groups, want) {
		t.Errorf("%+v", user)
	}
}

func TestAuthenticateRefuses(t *testing.T) {
	good, signing := getting(goodObject(t)), goodObject(t)
	delete(signing.Data.Reveal(), keyAuthentication)
	for name, test := range map[string]struct {
		bearer string
		get    SecretGetter
		now    time.Time
		want   error
	}{
		"empty":              {"", good, testNow, checkToken},
		"a JWT":              {"a.b.c", good, testNow, checkToken},
		"a line break":       {testToken + "\n", good, testNow, checkToken},
		"capitals":           {"ABCDEF." + testSecret, good, testNow, checkToken},
		"unknown ID":         {"abcdeg." + testSecret, good, testNow, checkCredential},
		"wrong secret":       {testID + ".0123456789abcdeg", good, testNow, checkCredential},
		"for signing alone":  {testToken, getting(signing), testNow, checkUsage},
		"expired":            {testToken, good, testNow.Add(time.Hour), checkExpired},
		"no getter":          {testToken, nil, testNow, refusal.CheckConfig},
		"no clock":           {testToken, good, time.Time{}, refusal.CheckConfig},
		"no token, no clock": {"", good, time.Time{}, refusal.CheckConfig},
		"unknown, no clock":  {"abcdeg." + testSecret, good, time.Time{}, refusal.CheckConfig},
		"getter fails":       {testToken, failing(io.ErrUnexpectedEOF), testNow, refusal.ErrRetry},
		"getter, nil":        {testToken, failing(nil), testNow, refusal.ErrRetry},
		"getter gave up":     {testToken, failing(context.Canceled), testNow, refusal.ErrRetry},
		"wrapped":            {testToken, failing(fmt.Errorf("the cache: %w", ErrNotFound)), testNow, checkCredential},
	} {
		t.Run(name, func(t *testing.T) {
			user, err := Authenticate(t.Context(), test.bearer, test.get, test.now)
			if !errors.Is(err, test.want) || user != nil || leaks(err.Error()) {
				t.Errorf("%s: %v, %v, want %v", name, user, err, test.want)
			}
			if errors.Is(err, refusal.ErrRetry) != (test.want == refusal.ErrRetry) { //nolint:errorlint // a row of the table
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if _, err := Authenticate(t.Context(), testToken, failing(io.ErrUnexpectedEOF), testNow); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v hides its cause", err)
	}
}

func failing(err error) SecretGetter {
	return func(context.Context, string, string) (*Object, error) { return nil, err }
}

// TestAuthenticateChecksTheSecret: each rule of a Secret refuses its bearer.
func TestAuthenticateChecksTheSecret(t *testing.T) {
	for _, test := range refusals {
		o := goodObject(t)
		test.change(o)
		_, err := Authenticate(t.Context(), testToken, func(context.Context, string, string) (*Object, error) { return o, nil }, testNow)
		switch want := test.want; {
		case want == checkNamespace || want == checkName:
			// The getter has returned another Secret than it was asked for.
			if !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%s: %v, want %v", test.name, err, refusal.ErrRetry)
			}
		case want == checkSecret:
			if !errors.Is(err, checkCredential) {
				t.Errorf("%s: %v, want %v", test.name, err, checkCredential)
			}
		case !errors.Is(err, want):
			t.Errorf("%s: %v, want %v", test.name, err, want)
		}
	}
}

// TestAuthenticateTellsNothing: who does not know a secret learns nothing about the tokens
// that there are, deleted, expired and broken ones among them.
func TestAuthenticateTellsNothing(t *testing.T) {
	_, unknown := Authenticate(t.Context(), "abcdeg."+testSecret, getting(), testNow)
	for _, test := range refusals {
		o := goodObject(t)
		test.change(o)
		if test.want == checkNamespace || test.want == checkName {
			continue
		}
		_, err := Authenticate(t.Context(), testID+".0123456789abcdeg", getting(o), testNow)
		if err == nil || err.Error() != unknown.Error() {
			t.Errorf("%s: %v, and for an unknown ID %v", test.name, err, unknown)
		}
	}
}

// TestAuthenticateAsksForTheSecretAlone: the getter sees no secret.
func TestAuthenticateAsksForTheSecretAlone(t *testing.T) {
	asked := ""
	_, _ = Authenticate(t.Context(), testToken, func(_ context.Context, namespace, name string) (*Object, error) {
		asked += namespace + "/" + name
		return nil, ErrNotFound
	}, testNow)
	if asked != "kube-system/bootstrap-token-abcdef" {
		t.Errorf("asked for %q", asked)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	get, ctx := getting(goodObject(b)), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Authenticate(ctx, testToken, get, testNow); err != nil {
			b.Fatal(err)
		}
	}
}
