package bootstraptoken

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/secrettest"
	"github.com/nodeattest/nodeattest/secret"
)

// leaks reports whether an error or an output holds the test token's secret.
func leaks(text string) bool { return strings.Contains(strings.ToLower(text), testSecret) }

// Every type that can hold a token's secret, by itself and in what holds it.
func TestSecretsAreNotShown(t *testing.T) {
	raw := []byte(testSecret)
	token := mustParse(t, testToken)
	s := Secret{Token: token, Description: "text", Expiration: time.Unix(1e9, 0), Groups: []string{nodeGroup},
		Annotations: secret.New(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"token-secret":"` + testSecret + `"}}`})}
	o, err := s.Object()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Token", func(t *testing.T) { secrettest.Check(t, token, raw) })
	t.Run("Secret", func(t *testing.T) { secrettest.Check(t, s, raw) })
	t.Run("Object", func(t *testing.T) { secrettest.Check(t, *o, raw) })
	t.Run("data", func(t *testing.T) { secrettest.Check(t, o.Data, raw) })
	t.Run("CreateOptions", func(t *testing.T) { secrettest.Check(t, CreateOptions{Token: token}, raw) })
	t.Run("DiscoverConfig", func(t *testing.T) { secrettest.Check(t, DiscoverConfig{Token: token}, raw) })
	t.Run("RefreshOptions", func(t *testing.T) { secrettest.Check(t, RefreshOptions{Token: token}, raw) })
	t.Run("Tokens", func(t *testing.T) { secrettest.Check(t, map[string][]Token{"a": {token}}, raw) })
	t.Run("Objects", func(t *testing.T) { secrettest.Check(t, []*Object{o}, raw) })
}

func TestTokenText(t *testing.T) {
	token := mustParse(t, testToken)
	for _, format := range []string{"%v", "%s", "%+v"} {
		if got := fmt.Sprintf(format, token); got != "abcdef.[secret]" {
			t.Errorf("%s gives %s", format, got)
		}
	}
	text, err := json.Marshal(map[string]any{"token": token, "none": Token{}})
	if err != nil || string(text) != `{"none":"no token","token":"abcdef.[secret]"}` {
		t.Errorf("%s, %v", text, err)
	}
	o := Object{Namespace: Namespace, Name: "bootstrap-token-abcdef", Type: SecretType}
	if got := fmt.Sprint(o); got != `Secret "bootstrap-token-abcdef" in "kube-system" of type "bootstrap.kubernetes.io/token"` {
		t.Error(got)
	}
}

// TestTokenIsNotComparable: == would say that two readings of one token differ.
func TestTokenIsNotComparable(t *testing.T) {
	if reflect.TypeFor[Token]().Comparable() {
		t.Error("Token can be compared with ==")
	}
}
