package bootstraptoken

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

// leaks reports whether text holds the test token's secret in any form in which fmt and
// the encoders write bytes.
func leaks(text string) bool {
	decimal := strings.Trim(fmt.Sprint([]byte(testSecret)), "[]")
	for _, form := range []string{
		testSecret, hex.EncodeToString([]byte(testSecret)), decimal, strings.ReplaceAll(decimal, " ", ","),
		base64.StdEncoding.EncodeToString([]byte(testSecret))[:20], fmt.Sprintf("% x", testSecret), fmt.Sprintf("%#v", []byte(testSecret)),
		strings.Trim(fmt.Sprintf("%o", []byte(testSecret)), "[]"), strings.Trim(fmt.Sprintf("%b", []byte(testSecret)), "[]"),
		strings.Trim(fmt.Sprintf("%U", []byte(testSecret)), "[]"), strings.Trim(fmt.Sprintf("%q", []byte(testSecret)), "[]"),
		strings.Trim(fmt.Sprintf("%c", []byte(testSecret)), "[]"), strings.Trim(fmt.Sprintf("% #x", testSecret), "[]"),
	} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
			return true
		}
	}
	return false
}

// holders are the values that hold the secret, and the ways in which programs hold them.
func holders(t *testing.T) map[string]any {
	token := mustParse(t, testToken)
	s := &Secret{Token: token, Description: "text", Expiration: time.Unix(1e9, 0), Groups: []string{NodeGroup}}
	o, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"Token": token, "*Token": &token, "Secret": *s, "*Secret": s, "Object": *o, "*Object": o, "Data": o.Data, "*Data": &o.Data,
		"[]Token": []Token{token}, "[]*Secret": []*Secret{s}, "[]Secret": []Secret{*s}, "[]Object": []Object{*o}, "[]*Object": []*Object{o},
		"map": map[string]Token{"a": token}, "map of objects": map[string]Object{"a": *o}, "any": []any{token, s, o, o.Data},
		"struct":           struct{ T Token }{token},
		"struct pointer":   struct{ T *Token }{&token},
		"hidden field":     struct{ t Token }{token},
		"hidden secret":    struct{ s Secret }{*s},
		"hidden pointer":   struct{ s *Secret }{s},
		"embedded":         struct{ Token }{token},
		"embedded secret":  struct{ *Secret }{s},
		"embedded object":  struct{ Object }{*o},
		"array":            [1]Token{token},
		"hidden array":     struct{ t [1]Token }{[1]Token{token}},
		"exported objects": struct{ O Object }{*o},
		"error":            &Error{Check: CheckID, Err: &Error{Check: CheckSecret, Got: token.String()}},
		"create options":   CreateOptions{Token: token},
		"refusals":         []Refusal{{Name: o.Name, Err: &Error{Check: CheckSecret}}},
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	for name, v := range holders(t) {
		for _, flags := range []string{"", "+", "#", " ", "-", "0", "40", ".60", "+#", "# "} {
			for _, verb := range "vTtbcdoOqxXUeEfFgGsz" {
				if text := fmt.Sprintf("%"+flags+string(verb), v); leaks(text) {
					t.Errorf("%s with %%%s%c: %s", name, flags, verb, text)
				}
			}
		}
		if text := fmt.Sprint(v) + fmt.Sprintln(v) + fmt.Errorf("%w %v", CheckToken, v).Error(); leaks(text) {
			t.Errorf("%s: %s", name, text)
		}
	}
	// fmt follows one pointer in a hidden field, where the verb is not one for pointers.
	o := holders(t)["*Object"].(*Object)
	for _, verb := range []string{"%v", "%+v", "%#v", "%d", "%x"} {
		if text := fmt.Sprintf(verb, struct{ o *Object }{o}); leaks(text) {
			t.Errorf("a hidden pointer to an Object with %s: %s", verb, text)
		}
	}
	if text := fmt.Sprintf("%"+"p", holders(t)["Token"]); leaks(text) {
		t.Errorf("the bad verb %%p: %s", text)
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	for name, v := range holders(t) {
		var text, jsonText bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&jsonText, nil)).Info("m", "v", v)
		if leaks(text.String()) || leaks(jsonText.String()) {
			t.Errorf("%s: %s%s", name, text.String(), jsonText.String())
		}
	}
}

func TestSecretsAreNotEncoded(t *testing.T) {
	for name, v := range holders(t) {
		text, err := json.Marshal(v)
		if err != nil || leaks(string(text)) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	for _, name := range []string{"Token", "*Token", "Secret", "[]Token", "struct"} {
		if text, err := xml.Marshal(holders(t)[name]); err != nil && name != "struct" || leaks(string(text)) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	text, err := mustParse(t, testToken).MarshalText()
	if err != nil || leaks(string(text)) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestRedactedForms(t *testing.T) {
	token := mustParse(t, testToken)
	for format, want := range map[string]string{
		"%v": "abcdef.[redacted]", "%s": "abcdef.[redacted]", "%+v": "abcdef.[redacted]", "%x": "abcdef.[redacted]",
		"%q": `"abcdef.[redacted]"`, "%#v": `bootstraptoken.Token("abcdef.[redacted]")`,
	} {
		if got := fmt.Sprintf(format, token); got != want {
			t.Errorf("%s gives %s, want %s", format, got, want)
		}
	}
	text, err := json.Marshal(map[string]any{"token": token, "none": Token{}})
	if err != nil || string(text) != `{"none":"no token","token":"abcdef.[redacted]"}` {
		t.Errorf("%s, %v", text, err)
	}
	o := Object{Namespace: Namespace, Name: "bootstrap-token-abcdef", Type: SecretType, Data: Data{"token-secret": []byte(testSecret), "b": nil}}
	for format, want := range map[string]string{
		"%v":  `Secret "bootstrap-token-abcdef" in "kube-system" of type "bootstrap.kubernetes.io/token"`,
		"%#v": `bootstraptoken.Object("Secret \"bootstrap-token-abcdef\" in \"kube-system\" of type \"bootstrap.kubernetes.io/token\"")`,
	} {
		if got := fmt.Sprintf(format, o); got != want {
			t.Errorf("%s gives %s, want %s", format, got, want)
		}
	}
	if got := fmt.Sprintf("%#v", o.Data); got != `bootstraptoken.Data["b" "token-secret" [redacted]]` {
		t.Error(got)
	}
}

// TestTokenIsNotComparable: == would say that two readings of one token differ.
func TestTokenIsNotComparable(t *testing.T) {
	if reflect.TypeFor[Token]().Comparable() {
		t.Error("Token can be compared with ==")
	}
}
