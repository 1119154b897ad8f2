package authenticator

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// instead has a server answer in another way where other returns true.
func instead(f *fakeAPI, other func(w http.ResponseWriter, r *http.Request) bool) {
	f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !other(w, r) {
			f.serve(w, r)
		}
	})
}

// TestEcho: a server, or a proxy before it, repeats the header of a refused request. The token is
// shown nowhere.
func TestEcho(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]func(w http.ResponseWriter, text string){
		"text": func(w http.ResponseWriter, text string) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(text))
		},
		"Status": func(w http.ResponseWriter, text string) {
			answer(w, http.StatusBadRequest, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 400, "message": text})
		},
		"condition": func(w http.ResponseWriter, text string) {
			answer(w, http.StatusCreated, map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]string{"name": "a", "uid": "u"},
				"status": map[string]any{"conditions": []map[string]string{{"type": "Denied", "status": "True", "reason": "No", "message": text}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			instead(f, func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("watch") != "" {
					return true
				}
				reply(w, "bad Authorization: "+r.Header.Get("Authorization"))
				return true
			})
			var log, shown bytes.Buffer
			a, _ := newNode(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			err := a.Rotate(t.Context())
			state, readErr := a.store.Read(stateFile, maxStateSize)
			testkit.MustDo(errors.Join(readErr, a.Status().Write(&shown, time.Now())))
			for where, out := range map[string]any{"error": err, "log": log.String(), "state": state, "status": shown.String()} {
				for _, leak := range testkit.SecretLeaks(out, []byte(testToken)) {
					t.Errorf("the %s %s", where, leak)
				}
			}
			if err == nil || !strings.Contains(log.String(), "(secret)") || !strings.Contains(shown.String(), "(secret)") {
				t.Errorf("the answer is not shown at all: %v", err)
			}
		})
	}
}

// TestPasswords: those in URLs of the configuration are shown nowhere.
func TestPasswords(t *testing.T) {
	t.Parallel()
	const password = "hunter2hunter3"
	f := newFakeAPI(t)
	for name, api := range map[string]func() (*rest.Config, error){
		"a server": func() (*rest.Config, error) {
			return &rest.Config{Host: "https://user:" + password + "@192.0.2.1"}, nil
		},
		"a proxy": func() (*rest.Config, error) {
			return nil, errors.New(`parse "http://user:` + password + `@pro xy:1": invalid character " " in host name`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newNode(t, f, func(c *Config) { c.API = api })
			s := a.Status()
			for _, leak := range testkit.SecretLeaks([]any{a.Rotate(t.Context()), s}, []byte(password)) {
				t.Error(leak)
			}
			if len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "API server: ") {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// TestTwoCAs: with a bundle of two CAs, such as during the rotation of a cluster's CA, the node
// attests for the one under which the API server's certificate verifies.
func TestTwoCAs(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	other := newFakeAPI(t).caCert
	server := testkit.Must(attest.ClusterID(f.server.Certificate()))
	another := testkit.Must(attest.ClusterID(other))
	for name, row := range map[string]struct {
		bundle    []*x509.Certificate
		clusterID string
		shown     string
		fails     error
	}{
		"the second":      {bundle: []*x509.Certificate{other, f.server.Certificate()}, shown: another + " or " + server},
		"the first":       {bundle: []*x509.Certificate{f.server.Certificate(), other}, shown: server + " or " + another},
		"twice":           {bundle: []*x509.Certificate{f.server.Certificate(), f.server.Certificate()}, shown: server},
		"configured":      {bundle: []*x509.Certificate{other, f.server.Certificate()}, clusterID: server, shown: server},
		"configured, not": {bundle: []*x509.Certificate{other, f.server.Certificate()}, clusterID: another, shown: another, fails: checkDenied},
		"neither":         {bundle: []*x509.Certificate{other, newFakeAPI(t).caCert}, fails: refusal.Check("api-server-certificate")},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newNode(t, f, func(c *Config) {
				c.ClusterID = row.clusterID
				c.API = func() (*rest.Config, error) {
					r, err := f.config()
					r.CAData = nil
					for _, ca := range row.bundle {
						r.CAData = append(r.CAData, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})...)
					}
					return r, err
				}
			})
			_, err := a.snapshot(caller{}).requestAnyVersion(t.Context(), nil, a.slots[0])
			if !errors.Is(err, row.fails) {
				t.Errorf("got %v, want %v", err, row.fails)
			}
			if s := a.Status(); row.shown != "" && (s.ClusterID != row.shown || strings.Contains(strings.Join(s.Problems, ""), "ClusterID")) {
				t.Errorf("status shows %q, %q", s.ClusterID, s.Problems)
			}
		})
	}
}

// TestSealedKey: with the recovery certificate the node has the user of its subject, and only its
// own key will do.
func TestSealedKey(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	a, _ := newNode(t, f, func(c *Config) { c.RecoverySigner = csr.SignerRecoveryTPM })
	giveRecovery(t, f, a)
	bare, _, err := a.connection()
	if err != nil {
		t.Fatal(err)
	}
	api := testkit.Must(credential{config: bare, pair: a.stored(recoveryFile)}.connect(t.Context(), &keeping{}))
	user, err := api.WhoAmI(t.Context())
	if err = errors.Join(err, api.Close()); err != nil || user.Username != csr.RecoveryUserPrefix+testNode {
		t.Errorf("got %+v, %v", user, err)
	}
	wrong := *a.stored(recoveryFile)
	key := testkit.Must((&keeping{}).CreateKey(t.Context()))
	wrong.Key = testkit.Must(key.File())
	if _, err := (credential{config: bare, pair: &wrong}).connect(t.Context(), &keeping{}); err == nil {
		t.Error("a key of another certificate is used")
	}
}

// TestConnectionsEnd: none outlasts its attempt.
func TestConnectionsEnd(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	var open, opened atomic.Int64
	a, _ := newNode(t, f, func(c *Config) {
		c.API = func() (*rest.Config, error) {
			r, err := f.config()
			r.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				open.Add(1)
				opened.Add(1)
				return &counted{Conn: conn, open: &open}, err
			}
			return r, err
		}
	})
	for n := range int64(10) {
		testkit.MustDo(a.Rotate(t.Context()))
		if open.Load() != 0 || opened.Load() != 2*(n+1) { // the second to try the new certificate
			t.Errorf("after %d attempts %d connections of %d are open", n+1, open.Load(), opened.Load())
		}
	}
}

// counted is a connection that counts itself until it is closed.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// TestWatchWithoutEnd: events without end, none of which decides, end the watch; the node looks
// again, and gets its certificate.
func TestWatchWithoutEnd(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	var endless atomic.Int32
	instead(f, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" || endless.Add(1) > 2 {
			return false
		}
		f.mu.Lock()
		o := f.objects[strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")].DeepCopy()
		f.mu.Unlock()
		o.Status.Conditions = nil
		line, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": o})
		w.Header().Set("Content-Type", "application/json")
		for err == nil && r.Context().Err() == nil {
			_, err = w.Write(append(line, '\n'))
		}
		return true
	})
	a, _ := newNode(t, f, nil)
	if err := a.Rotate(t.Context()); err != nil || endless.Load() < 2 {
		t.Errorf("got %v after %d watches", err, endless.Load())
	}
}

// TestRequestTooLarge: an answer that exceeds the bounds whenever it is read ends the attempt.
func TestRequestTooLarge(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	instead(f, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bytes.Repeat([]byte(" "), 2<<20))
		return true
	})
	a, _ := newNode(t, f, nil)
	if err := a.Rotate(t.Context()); !errors.Is(err, apiclient.CheckAnswer) {
		t.Errorf("got %v, want %q", err, apiclient.CheckAnswer)
	}
}

// TestReportsUntrusted: the caller learns that the API server's certificate does not verify, from a renewal and
// from a check of the certificate, and of no other error.
func TestReportsUntrusted(t *testing.T) {
	f, calls := newFakeAPI(t), 0
	stranger := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: newFakeAPI(t).caCert.Raw})
	known := true
	a, _ := newNode(t, f, func(c *Config) {
		c.Untrusted = func() { calls++ }
		c.API = func() (*rest.Config, error) {
			config, err := f.config()
			if !known {
				config.CAData = stranger
			}
			return config, err
		}
	})
	testkit.MustDo(a.Rotate(t.Context()))
	f.set(func() { f.down = true })
	if err := a.Rotate(t.Context()); err == nil || calls != 0 {
		t.Errorf("a server that is down: %v, %d calls", err, calls)
	}
	known = false
	if err := a.Rotate(t.Context()); !errors.Is(err, apiclient.CheckServerCertificate) || calls != 1 {
		t.Errorf("got %v, %d calls", err, calls)
	}
	a.checkAccepted(t.Context(), a.slots[0], a.stored(ClientFile))
	if calls != 2 {
		t.Errorf("a check of the certificate: %d calls", calls)
	}
}
