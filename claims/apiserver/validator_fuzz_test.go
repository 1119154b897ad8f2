package apiserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// FuzzValidate gives signed claim sets to both validators: what strict validation takes,
// kube-apiserver takes too, as the same user, and every refusal says which check it was.
func FuzzValidate(f *testing.F) {
	testkit.BeginFuzz(f)
	w := newWorld(f)
	f.Add(w.payload(f))
	w.bind("secret")
	f.Add(w.payload(f))
	w.bind("node")
	w.extend()
	f.Add(w.payload(f))
	f.Add([]byte(`{"iss":"` + worldIssuer + `","kubernetes.io":null}`))
	f.Add([]byte(`{"ISS":"` + worldIssuer + `","exp":1e300,"aud":["a"]}`))
	kubernetes, strict := w.kubernetes(f), w.strict(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > claims.MaxClaimsSize/2 {
			return
		}
		token := w.sign(t, payload)
		k, kErr := kubernetes.Validate(t.Context(), token)
		s, sErr := strict.Validate(t.Context(), token)
		checkRefusals(t, kErr, sErr, token)
		if sErr == nil && (kErr != nil || k.Username() != s.Username() || k.UID() != s.UID()) {
			t.Fatalf("strict takes it as %v, Kubernetes as %v (%v)", s, k, kErr)
		}
	})
}

// FuzzValidateToken gives any text to both validators.
func FuzzValidateToken(f *testing.F) {
	w := newWorld(f)
	token := w.token(f)
	f.Add(token)
	f.Add(token + "\n")
	f.Add(strings.Replace(token, ".", "..", 1))
	f.Add(rejoin(f, token, 0, []byte(`{"alg":"none","kid":"x"}`)))
	f.Add(w.raw(f, `{"alg":"RS256","b64":false}`))
	kubernetes, strict := w.kubernetes(f), w.strict(f)
	f.Fuzz(func(t *testing.T, token string) {
		_, kErr := kubernetes.Validate(t.Context(), token)
		_, sErr := strict.Validate(t.Context(), token)
		checkRefusals(t, kErr, sErr, token)
		if sErr == nil && kErr != nil {
			t.Fatalf("strict takes what Kubernetes refuses: %v", kErr)
		}
	})
}

func checkRefusals(t *testing.T, kubernetes, strict error, token string) {
	t.Helper()
	if kubernetes != nil {
		refusal, ok := errors.AsType[*ReviewError](kubernetes)
		if !ok || refusal.Reason == nil || refusal.Message == "" {
			t.Fatalf("no refusal of kube-apiserver's: %#v", kubernetes)
		}
	}
	for _, err := range []error{kubernetes, strict} {
		if err == nil {
			continue
		}
		if _, ok := errors.AsType[*refusal.Error](err); !ok {
			t.Fatalf("a refusal without a check: %v", err)
		}
		if i := strings.LastIndexByte(token, '.'); i >= 0 && len(token)-i > 80 && strings.Contains(err.Error(), token[i:]) {
			t.Fatalf("the signature is in the error: %v", err)
		}
	}
}
