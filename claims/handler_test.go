package claims

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// A served world has a server behind the handler, and nodes that may call it.
type servedWorld struct {
	*world
	ca      *nodeCA
	server  *httptest.Server
	refused []error
	seen    *http.Request // by the handler behind
}

func serve(t *testing.T, opts HandlerOptions, change func(c *ValidatorConfig)) *servedWorld {
	t.Helper()
	w := &servedWorld{world: newWorld(t), ca: newNodeCA(t)}
	config := w.strictConfig()
	if change != nil {
		change(&config)
	}
	opts.Refused = func(r *http.Request, err error) {
		w.refused = append(w.refused, err)
		if r.Header.Get("Authorization") != "" {
			t.Error("the log of refusals sees the token")
		}
	}
	next := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.seen = r
		who, ok := WorkloadFrom(r.Context())
		if !ok {
			t.Error("no workload behind the handler")
			return
		}
		_, _ = io.WriteString(rw, who.Result.Username()+" on "+who.Node.Name+" by "+who.Facts.Facts.String())
	})
	handler, err := NewHandler(w.strictWith(t, config), next, opts)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(w.ca.cert)
	w.server = httptest.NewUnstartedServer(handler)
	w.server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	return w
}

// get sends a request from a node, nil for none.
func (w *servedWorld) get(t *testing.T, node *tls.Certificate, authorization ...string) (*http.Response, string) {
	t.Helper()
	transport := w.server.Client().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if node != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*node}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Authorization"] = authorization
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestHandlerAccepts(t *testing.T) {
	w := serve(t, HandlerOptions{}, nil)
	nodeA := w.ca.issue(t, nodeTemplate(t, "node-a"))
	for _, scheme := range []string{"Bearer ", "bearer "} {
		response, body := w.get(t, &nodeA, scheme+w.token(t))
		if response.StatusCode != 200 || body != "system:serviceaccount:ns:app on node-a by node-name,node-uid,certificate-provider-id,registered-provider-id" {
			t.Errorf("%d: %s", response.StatusCode, body)
		}
		if w.seen.Header.Get("Authorization") != "" {
			t.Error("the token goes on to the next handler")
		}
	}
	if w.refused != nil {
		t.Errorf("refused: %v", w.refused)
	}
}

// While a cluster's issuer changes, tokens of both pass one handler, each under its own issuer's keys
// alone and once; a third issuer's do not.
func TestHandlerTwoIssuers(t *testing.T) {
	const oldIssuer = "https://old.example"
	old := newWorld(t)
	oldSigner, oldKeys := old.signer, old.keys
	var issuers map[string]jws.KeySet
	w := serve(t, HandlerOptions{}, func(c *ValidatorConfig) {
		c.Issuers[oldIssuer], c.Replay, c.InsecureAllowReplay = oldKeys, newReplay(t, 0, c.Now), false
		issuers = c.Issuers
	})
	issuers["https://other.example"] = oldKeys // after NewValidator
	nodeA, newSigner := w.ca.issue(t, nodeTemplate(t, "node-a")), w.signer
	for _, c := range []struct {
		name, issuer string
		signer       *jws.CryptoSigner
		want         Check // "" if the token passes
	}{
		{"the new one", worldIssuer, newSigner, ""},
		{"the old one, with the same ID", oldIssuer, oldSigner, ""},
		{"the new one again", worldIssuer, newSigner, checkReplay},
		{"the old one again", oldIssuer, oldSigner, checkReplay},
		{"the new one by the old one's key", worldIssuer, oldSigner, CheckNoKey},
		{"the old one by the new one's key", oldIssuer, newSigner, CheckNoKey},
		{"another", "https://other.example", oldSigner, CheckIssuer},
		{"the old one and a slash", oldIssuer + "/", oldSigner, CheckIssuer},
	} {
		w.claims.Issuer, w.signer, w.refused = c.issuer, c.signer, nil
		response, body := w.get(t, &nodeA, "Bearer "+w.token(t))
		if c.want == "" && response.StatusCode != http.StatusOK || c.want != "" && (response.StatusCode != http.StatusUnauthorized || len(w.refused) != 1 || !errors.Is(w.refused[0], c.want)) {
			t.Errorf("%s: %d, %s, %v, want %q", c.name, response.StatusCode, body, w.refused, c.want)
		}
	}
	for _, audience := range []string{worldIssuer, oldIssuer} {
		config := w.strictConfig()
		config.Issuers[oldIssuer], config.Audiences = oldKeys, []string{worldAudience, audience}
		if _, err := NewValidator(config); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("audience %s: got %v", audience, err)
		}
	}
}

// A TLS session ticket of a node does not prove that its holder has the node's key.
func TestHandlerRefusesResumedSessions(t *testing.T) {
	w := serve(t, HandlerOptions{}, nil)
	nodeA := w.ca.issue(t, nodeTemplate(t, "node-a"))
	for _, tickets := range []bool{true, false} {
		server := httptest.NewUnstartedServer(w.server.Config.Handler)
		server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: w.server.TLS.ClientCAs, SessionTicketsDisabled: !tickets}
		server.StartTLS()
		t.Cleanup(server.Close)
		server.Client().Transport.(*http.Transport).TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		w.server = server
		for try, resumed := range []bool{false, tickets} {
			response, body := w.get(t, &nodeA, "Bearer "+w.token(t))
			if response.TLS.DidResume != resumed || (response.StatusCode == http.StatusForbidden) != resumed {
				t.Errorf("tickets %t, connection %d: resumed %t: %d %s", tickets, try, response.TLS.DidResume, response.StatusCode, body)
			}
		}
	}
}

func TestHandlerRefuses(t *testing.T) {
	w := serve(t, HandlerOptions{}, nil)
	good := w.token(t)
	nodeA := w.ca.issue(t, nodeTemplate(t, "node-a"))
	nodeB := w.ca.issue(t, nodeTemplate(t, "node-b"))
	serving := nodeTemplate(t, "node-a")
	serving.DNSNames = []string{"node-a"}
	withNames := w.ca.issue(t, serving)
	w.claims.Audiences = []string{"another"}
	elsewhere := w.token(t)
	for _, tt := range []struct {
		name          string
		node          *tls.Certificate
		authorization []string
		status        int
		check         Check
		challenge     string
	}{
		{"no certificate", nil, []string{"Bearer " + good}, 403, checkNodeCertificate, ""},
		{"a certificate with names", &withNames, []string{"Bearer " + good}, 403, checkNodeCertificate, ""},
		{"no token", &nodeA, nil, 401, checkBearer, "Bearer"},
		{"two tokens", &nodeA, []string{"Bearer " + good, "Bearer " + good}, 401, checkBearer, "Bearer"},
		{"basic", &nodeA, []string{"Basic " + good}, 401, checkBearer, "Bearer"},
		{"the scheme alone", &nodeA, []string{"Bearer"}, 401, checkBearer, "Bearer"},
		{"no scheme", &nodeA, []string{good}, 401, checkBearer, "Bearer"},
		{"no good token", &nodeA, []string{"Bearer " + good + "="}, 401, checkToken, `Bearer error="invalid_token", error_description="token"`},
		{"two spaces", &nodeA, []string{"Bearer  " + good}, 401, checkToken, `Bearer error="invalid_token", error_description="token"`},
		{"another audience", &nodeA, []string{"Bearer " + elsewhere}, 401, CheckAudience, `Bearer error="invalid_token", error_description="audience"`},
		{"replayed from another node", &nodeB, []string{"Bearer " + good}, 401, checkNodeName, `Bearer error="invalid_token", error_description="node-name"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.refused, w.seen = nil, nil
			response, body := w.get(t, tt.node, tt.authorization...)
			if response.StatusCode != tt.status || body != "refused: "+string(tt.check)+"\n" {
				t.Errorf("%d %q, want %d and the check %s", response.StatusCode, body, tt.status, string(tt.check))
			}
			if got := response.Header.Get("WWW-Authenticate"); got != tt.challenge {
				t.Errorf("WWW-Authenticate %q, want %q", got, tt.challenge)
			}
			if w.seen != nil || len(w.refused) != 1 {
				t.Fatalf("let through: %v, refusals %v", w.seen != nil, w.refused)
			}
			wantCheck(t, w.refused[0], tt.check)
			if strings.Contains(w.refused[0].Error(), good[len(good)-20:]) {
				t.Errorf("the token is in the error: %v", w.refused[0])
			}
		})
	}
}

func TestHandlerUndecided(t *testing.T) {
	w := serve(t, HandlerOptions{}, nil)
	w.objects.fail = errDead
	nodeA := w.ca.issue(t, nodeTemplate(t, "node-a"))
	response, body := w.get(t, &nodeA, "Bearer "+w.token(t))
	if response.StatusCode != 503 || body != "refused: retry\n" || response.Header.Get("Retry-After") != "1" || response.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("%d %q %v", response.StatusCode, body, response.Header)
	}
	wantCheck(t, w.refused[0], refusal.ErrRetry)
}

// TestHandlerExpired: a connection that outlives its certificate is worth nothing.
func TestHandlerExpired(t *testing.T) {
	later := time.Now().Add(2 * time.Hour)
	w := serve(t, HandlerOptions{Certificate: NodeCertificateOptions{Now: func() time.Time { return later }}}, nil)
	nodeA := w.ca.issue(t, nodeTemplate(t, "node-a"))
	response, _ := w.get(t, &nodeA, "Bearer "+w.token(t))
	if response.StatusCode != 403 {
		t.Errorf("status %d, want 403", response.StatusCode)
	}
}

func TestNewHandler(t *testing.T) {
	w := newWorld(t)
	config := w.strictConfig()
	config.Node = NodeCheck{}
	for row, v := range []*Validator{nil, w.strictWith(t, config)} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			_, err := NewHandler(v, http.NotFoundHandler(), HandlerOptions{})
			wantCheck(t, err, refusal.CheckConfig)
		})
	}
	if _, ok := WorkloadFrom(t.Context()); ok {
		t.Error("a workload out of nowhere")
	}
}
