package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
)

// TestValidatorIssuerOfWhatCannotBeRead: a claim set that encoding/json does not read, or
// that is too long, has no issuer, whatever it says.
func TestValidatorIssuerOfWhatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	validate := func(payload string) error {
		_, err := w.kubernetes(t).Validate(t.Context(), w.sign(t, []byte(payload)), worldAudience)
		return err
	}
	wantReason(t, validate(`{"iss":"`+worldIssuer+`","ISS":5}`), checkNotOurs)
	good, err := w.claims.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	// "ISS" is what only the second reader takes, so that the size is what decides.
	padded := func(size int) string {
		text := `{"ISS":"` + worldIssuer + `","x":"",` + string(good[1:])
		return strings.Replace(text, `"x":""`, `"x":"`+strings.Repeat("x", size-len(text))+`"`, 1)
	}
	if err := validate(padded(claims.MaxClaimsSize)); err != nil {
		t.Errorf("the longest claim set: %v", err)
	}
	wantReason(t, validate(padded(claims.MaxClaimsSize+1)), checkNotOurs)
}

// TestValidatorKeysThatAreNil: a key set with a hole in it does not panic, and the reason
// of a token whose header cannot be read is what is wrong with the header.
func TestValidatorKeysThatAreNil(t *testing.T) {
	w := newWorld(t)
	config := w.kubernetesConfig()
	config.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return []*jws.Key{nil}, nil })
	_, err := w.kubernetesWith(t, config).Validate(t.Context(), w.token(t), worldAudience)
	wantReason(t, err, claims.CheckSignature)

	payload, err := w.claims.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	token := encode(`{"alg":"none","kid":"`+w.signer.Key().KeyID()+`"}`) + "." + encode(string(payload)) + "." + encode(string(make([]byte, 64)))
	_, err = w.kubernetes(t).Validate(t.Context(), token, worldAudience)
	if wantReason(t, err, claims.CheckSignature); !errors.Is(err, jws.CheckAlgorithm) {
		t.Errorf("got %v, want %v in it", err, jws.CheckAlgorithm)
	}
}

// TestMembers: JSON that is none, in each place.
func TestMembers(t *testing.T) {
	for _, text := range []string{"", "x", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1}}`, `{5:1}`} {
		if _, err := parseLenient([]byte(text), Kubernetes137); !errors.Is(err, claims.CheckEncoding) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, _, err := parseClaims([]byte(`{"iss":5,"aud":5}`), Kubernetes137)
	if e, ok := errors.AsType[*Error](err); !ok || e.Check != claims.CheckType || !strings.HasPrefix(e.Got, "iss") {
		t.Errorf("of two faults, %v", err)
	}
}
