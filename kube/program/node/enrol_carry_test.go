package node

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestOverHTTPS posts a request to servers that are not as they should be. The last is.
func TestOverHTTPS(t *testing.T) {
	reply := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"conditions": [{"type": "Denied", "reason": "Machine"}]}`)
	}
	status := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status); reply(w, r) }
	}
	for name, row := range map[string]struct {
		handler http.HandlerFunc
		change  func(*httptest.Server)
		ca      string // "": the server's
		want    string // "": a reply
		is      error
	}{
		"as it should be": {handler: reply},
		"a redirect":      {handler: http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect).ServeHTTP, want: "got 307", is: checkServer},
		"a large reply":   {handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, spaces{}, maxReply+1) }, want: "at most", is: checkServer},
		"large headers": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*maxHeaders))
			reply(w, r)
		}, want: "headers"},
		"no reply":         {handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "\x1b[2J") }, want: "in JSON", is: checkServer},
		"it is busy":       {handler: status(http.StatusTooManyRequests), want: "try again", is: refusal.ErrRetry},
		"it cannot decide": {handler: status(http.StatusServiceUnavailable), want: "try again", is: refusal.ErrRetry},
		"another path":     {handler: http.NotFound, want: "404 Not Found", is: checkServer},
		"another CA's":     {handler: reply, ca: selfSigned(t, "other.pem"), want: "certificate signed by unknown authority"},
		"an older TLS":     {handler: reply, change: func(s *httptest.Server) { s.TLS = &tls.Config{MaxVersion: tls.VersionTLS12} }, want: "protocol version"},
		"it hangs up":      {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: "EOF"},
		"a reply that stops": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			_, _ = io.WriteString(w, "{")
		}, want: "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(row.handler)
			if row.change != nil {
				row.change(s)
			}
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			defer s.Close()
			ca := row.ca
			if ca == "" {
				ca = written(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
			}
			carry := testkit.Must(overHTTPS(s.URL, ca))
			got, err := carry(t.Context(), &csr.Spec{SignerName: csr.SignerClientTPM})
			if (err == nil) != (row.want == "") || err != nil && (!strings.Contains(err.Error(), row.want) || row.is != nil && !errors.Is(err, row.is) || strings.Contains(err.Error(), "\x1b")) {
				t.Fatalf("got %v, want %q", err, row.want)
			}
			if err == nil && got.Status.Conditions[0].Reason != "Machine" {
				t.Errorf("got %+v", got.Status)
			}
			if again := errors.Is(err, refusal.ErrRetry); again != errors.Is(row.is, refusal.ErrRetry) {
				t.Errorf("try again: %t", again)
			}
		})
	}
}

// spaces is an endless text of them.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestPostedRequest: the body is the request, as in a file.
func TestPostedRequest(t *testing.T) {
	var got csr.Spec
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method != http.MethodPost || r.URL.Path != "/enrol" {
			t.Errorf("%s %s, %v", r.Method, r.URL, err)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer s.Close()
	carry := testkit.Must(overHTTPS(s.URL+"/enrol", written(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))))
	if _, err := carry(t.Context(), &csr.Spec{Request: []byte("request"), SignerName: csr.SignerClientTPM}); err != nil || string(got.Request) != "request" || got.SignerName != csr.SignerClientTPM {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestOverHTTPSRefuses invalid URLs, before the TPM is used.
func TestOverHTTPSRefuses(t *testing.T) {
	ca := selfSigned(t, "ca.pem")
	for _, to := range []string{"http://ca.example/enrol", "https:///enrol", "https://user:s3cret@ca.example/enrol", "ca.example:8443", "://", "\x00"} {
		if _, err := overHTTPS(to, ca); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%q: got %v", to, err)
		}
	}
	if _, err := overHTTPS("https://ca.example/enrol", written(t, "empty.pem", nil)); err == nil {
		t.Error("no CA: no error")
	}
}
