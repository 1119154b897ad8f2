package claims

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestAdmit: another protocol than HTTP gets the same decision, each is observed once, and a context is
// returned for an accepted request alone.
func TestAdmit(t *testing.T) {
	w, ca := newWorld(t), newNodeCA(t)
	type observed struct {
		err  error
		took time.Duration
	}
	var seen []observed
	handler, err := NewHandler(w.strict(t), nil, HandlerOptions{
		Observe: func(err error, took time.Duration) { seen = append(seen, observed{err, took}) },
		Refused: func(*http.Request, error) { t.Error("a refusal of an HTTP request") },
	})
	if err != nil {
		t.Fatal(err)
	}
	nodeA, nodeB := ca.issue(t, nodeTemplate(t, "node-a")), ca.issue(t, nodeTemplate(t, "node-b"))
	state := func(c *tls.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c.Leaf, ca.cert}}}
	}
	token := "Bearer " + w.token(t)
	for _, tt := range []struct {
		name          string
		state         *tls.ConnectionState
		authorization []string
		fail          error
		want          Check // "" if the request passes
	}{
		{"from its node", state(&nodeA), []string{token}, nil, ""},
		{"from another node", state(&nodeB), []string{token}, nil, checkNodeName},
		{"without TLS", nil, []string{token}, nil, checkNodeCertificate},
		{"without a token", state(&nodeA), nil, nil, checkBearer},
		{"with two tokens", state(&nodeA), []string{token, token}, nil, checkBearer},
		{"undecided", state(&nodeA), []string{token}, errDead, refusal.ErrRetry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen, w.objects.fail = nil, tt.fail
			ctx, err := handler.Admit(t.Context(), tt.state, tt.authorization)
			if len(seen) != 1 || !errors.Is(seen[0].err, err) || seen[0].took < 0 || seen[0].took > time.Minute {
				t.Errorf("observed %v, want %v once", seen, err)
			}
			if tt.want != "" {
				wantCheck(t, err, tt.want)
				if ctx != nil {
					t.Error("a context of a refused request")
				}
				return
			}
			if who, ok := WorkloadFrom(ctx); err != nil || !ok || who.Node.Name != "node-a" || who.Result.Username() != "system:serviceaccount:ns:app" {
				t.Errorf("got %v, %v", who, err)
			}
		})
	}
}

// A Handler that NewHandler did not make admits no request.
func TestAdmitOfNoHandler(t *testing.T) {
	for _, h := range []*Handler{nil, {}} {
		_, err := h.Admit(t.Context(), nil, nil)
		wantCheck(t, err, refusal.CheckConfig)
	}
}

// A Handler for other protocols alone answers no HTTP request.
func TestAdmitAlone(t *testing.T) {
	w, ca := newWorld(t), newNodeCA(t)
	handler, err := NewHandler(w.strict(t), nil, HandlerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodeA := ca.issue(t, nodeTemplate(t, "node-a"))
	for token, want := range map[string]int{w.token(t): http.StatusNotFound, "x": http.StatusUnauthorized} {
		r, answer := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{nodeA.Leaf, ca.cert}}}
		r.Header.Set("Authorization", "Bearer "+token)
		if handler.ServeHTTP(answer, r); answer.Code != want {
			t.Errorf("%d %s, want %d", answer.Code, answer.Body, want)
		}
	}
}

// TestHandlerObserves: a decision on an HTTP request is observed once, and knows the certificate's
// node when the record is looked up.
func TestHandlerObserves(t *testing.T) {
	var seen []error
	var asked []string
	w := serve(t, HandlerOptions{
		Observe: func(err error, _ time.Duration) { seen = append(seen, err) },
		FindRecord: func(_ context.Context, nodeName, _ string) (*CertificateRecord, error) {
			asked = append(asked, nodeName)
			return nil, ErrNotFound
		},
	}, nil)
	nodeB := w.ca.issue(t, nodeTemplate(t, "node-b"))
	if response, body := w.get(t, &nodeB, "Bearer "+w.token(t)); response.StatusCode != http.StatusForbidden {
		t.Errorf("%d %q", response.StatusCode, body)
	}
	if len(seen) != 1 || len(asked) != 1 || asked[0] != "node-b" {
		t.Fatalf("observed %v, looked up %q", seen, asked)
	}
	wantCheck(t, seen[0], checkNodeCertificate)
}
