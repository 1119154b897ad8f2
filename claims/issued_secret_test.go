package claims

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestIssuedShowsNoToken: a token is a bearer's secret, and nothing that prints or encodes
// an Issued shows it, wherever the Issued stands.
func TestIssuedShowsNoToken(t *testing.T) {
	_, objects := recordedRequests(t)
	issued, err := newIssuer(t, issuerConfig(t, objects)).Issue(testContext, &TokenRequest{Namespace: "ns", Name: "sa"})
	if err != nil {
		t.Fatal(err)
	}
	token := issued.Token.Reveal()
	signature := token[strings.LastIndexByte(token, '.')+1:]
	if len(signature) < 80 {
		t.Fatalf("no token: %d bytes", len(token))
	}
	for name, value := range map[string]any{
		"value": *issued, "pointer": issued,
		"exported field":           struct{ Issued Issued }{*issued},
		"exported pointer":         struct{ Issued *Issued }{issued},
		"unexported field":         struct{ issued Issued }{*issued},
		"unexported pointer":       struct{ issued *Issued }{issued},
		"embedded":                 struct{ Issued }{*issued},
		"slice in an unexported":   struct{ all []Issued }{[]Issued{*issued}},
		"map in an unexported":     struct{ all map[string]Issued }{map[string]Issued{"a": *issued}},
		"interface in an exported": struct{ Any any }{issued},
		"error":                    fmt.Errorf("not sent: %v", *issued),
	} {
		t.Run(name, func(t *testing.T) {
			var shown []string
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p"} {
				shown = append(shown, fmt.Sprintf(verb, value))
			}
			for _, handler := range []func(*bytes.Buffer) slog.Handler{
				func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
				func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
			} {
				var b bytes.Buffer
				slog.New(handler(&b)).Info("issued", "value", value)
				shown = append(shown, b.String())
			}
			if text, err := json.Marshal(value); err == nil {
				shown = append(shown, string(text))
			}
			var b bytes.Buffer
			_ = gob.NewEncoder(&b).Encode(value) // whether it can or not
			shown = append(shown, b.String())
			for _, text := range shown {
				if strings.Contains(text, signature) || strings.Contains(text, fmt.Sprintf("%x", signature)) || strings.Contains(text, fmt.Sprintf("%X", signature)) {
					t.Errorf("shows the token: %s", text)
				}
			}
		})
	}
}

// TestErrorsShowNoToken: what is refused is not in the refusal.
func TestErrorsShowNoToken(t *testing.T) {
	w := newWorld(t)
	token := w.token(t)
	signature := token[strings.LastIndexByte(token, '.')+1:]
	w.objects.account.UID = "another"
	_, strict := w.strict(t).Validate(t.Context(), token)
	_, kubernetes := w.kubernetes(t).Validate(t.Context(), token)
	_, malformed := w.strict(t).Validate(t.Context(), token+".")
	for _, err := range []error{strict, kubernetes, malformed} {
		if text := fmt.Sprintf("%v %+v %#v", err, errors.Unwrap(err), err); err == nil || strings.Contains(text, signature) {
			t.Errorf("the token is in the error, or there is none: %s", text)
		}
	}
}
