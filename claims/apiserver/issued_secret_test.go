package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/secrettest"
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
	secrettest.Check(t, *issued, []byte(token[strings.LastIndexByte(token, '.')+1:]))
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
		if err == nil {
			t.Error("accepted")
		}
		for _, leak := range secrettest.Leaks(err, []byte(signature)) {
			t.Errorf("%v: %s", fmt.Sprintf("%T", err), leak)
		}
	}
}
