package apiserver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
)

// TestValidatorTwoIssuers: kube-apiserver looks at the last "iss" in any case first, and
// at the one that is spelled so when it has verified the signature. A token that shows each
// of them another issuer is refused by the second look.
func TestValidatorTwoIssuers(t *testing.T) {
	w := newWorld(t)
	payload, err := w.claims.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.kubernetes(t).Validate(t.Context(), w.sign(t, payload))
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(string(payload), `"iss":"`+worldIssuer+`"`, `"iss":"https://other.example","ISS":"`+worldIssuer+`"`, 1)
	_, err = w.kubernetes(t).Validate(t.Context(), w.sign(t, []byte(two)))
	wantReason(t, err, claims.CheckIssuer)

	legacy := newLegacyWorld(t)
	if payload, err = legacy.claims.Marshal(); err != nil {
		t.Fatal(err)
	}
	if _, err := legacy.validate(t); err != nil {
		t.Fatal(err)
	}
	two = strings.Replace(string(payload), `"iss":"`+claims.LegacyIssuer+`"`, `"iss":"https://other.example","ISS":"`+claims.LegacyIssuer+`"`, 1)
	config := legacy.kubernetesConfig()
	token := legacy.sign(t, []byte(two))
	config.Legacy = legacyObjects{legacy, NewTokenSecret(legacy.object, []byte(token), nil)}
	_, err = legacy.kubernetesWith(t, config).Validate(t.Context(), token)
	wantReason(t, err, claims.CheckIssuer)
}

func wantReason(t testing.TB, err error, want Check) {
	t.Helper()
	e, ok := errors.AsType[*ReviewError](err)
	if !ok || e.Reason == nil || e.Reason.Check != want {
		t.Errorf("got %v, want the check %s", err, string(want))
	}
}

// TestGrantKinds: what a token cannot be bound to is refused, and not left out.
func TestGrantKinds(t *testing.T) {
	policy := Policy{Issuer: "https://issuer.example", APIAudiences: []string{"api"}}
	b := Bound{ServiceAccount: &claims.Object{Namespace: "ns", Name: "sa", UID: "u"}, Node: &claims.Node{Object: claims.Object{Name: "n", UID: "u"}}}
	for _, ref := range []BoundObjectReference{{Kind: "Job", APIVersion: "v1", Name: "n"}, {Kind: "Node", APIVersion: "x/v1", Name: "n"}, {Name: "n"}} {
		r := TokenRequest{Namespace: "ns", Name: "sa", BoundObject: &ref}
		if g, err := policy.Grant(&r, b, "id", time.Unix(1700000000, 0)); g != nil || !errors.Is(err, ReasonBadRequest) {
			t.Errorf("%+v: %+v, %v, want %v", ref, g, err, ReasonBadRequest)
		}
	}
}

// TestGrantNeedsNames: a request without namespace or name is one for nobody, also where
// there is an account without.
func TestGrantNeedsNames(t *testing.T) {
	policy := Policy{Issuer: "https://issuer.example", APIAudiences: []string{"api"}}
	for name, r := range map[string]TokenRequest{
		"no name":      {Namespace: "ns"},
		"no namespace": {Name: "sa"},
	} {
		t.Run(name, func(t *testing.T) {
			b := Bound{ServiceAccount: &claims.Object{Namespace: r.Namespace, Name: r.Name, UID: "u"}}
			if g, err := policy.Grant(&r, b, "id", time.Unix(1700000000, 0)); g != nil || !errors.Is(err, ReasonBadRequest) {
				t.Errorf("%+v, %v, want %v", g, err, ReasonBadRequest)
			}
		})
	}
}
