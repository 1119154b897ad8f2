package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/httpserver"
	"github.com/nodeattest/nodeattest/tpmsim"
)

var limits = httpserver.Enrolments

// served is a server on a port of its own.
type served struct {
	*server
	url       string
	client    *http.Client
	out, errs bytes.Buffer
}

func serveHTTPS(t *testing.T, f *config, l httpserver.Limits) *served {
	t.Helper()
	of := httptest.NewTLSServer(nil) // whose certificate is for 127.0.0.1
	of.Close()
	pair := of.TLS.Certificates[0]
	key := testkit.Must(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))
	s := new(served)
	s.server = testkit.Must(newServer(f, &web{certificate: write(t, t.TempDir(), "tls.pem", pemOf("CERTIFICATE", pair.Certificate[0])), key: write(t, t.TempDir(), "tls.key", pemOf("PRIVATE KEY", key))}, &s.out, &s.errs))
	listener := testkit.Must(l.Listen(t.Context(), "127.0.0.1:0"))
	h := s.http(l)
	done := make(chan struct{})
	go func() { defer close(done); _ = h.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = h.Close(); <-done })
	s.url = "https://" + listener.Addr().String() + "/enrol"
	pool := x509.NewCertPool()
	pool.AddCert(of.Certificate())
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	return s
}

// post sends a text, and returns the status and the reply.
func (s *served) post(t *testing.T, text []byte) (int, csr.Status) {
	t.Helper()
	got := testkit.Must(s.client.Post(s.url, "application/json", bytes.NewReader(text)))
	defer got.Body.Close()
	body := testkit.Must(io.ReadAll(got.Body))
	var status csr.Status
	if err := json.Unmarshal(body, &status); (err == nil) != (got.StatusCode == http.StatusOK) {
		t.Errorf("%s: %s", got.Status, body)
	}
	return got.StatusCode, status
}

// ask posts a request, which is replied to.
func (s *served) ask(t *testing.T, spec *csr.Spec) csr.Status {
	t.Helper()
	text := testkit.Must(json.Marshal(spec))
	code, status := s.post(t, text)
	if code != http.StatusOK {
		t.Fatalf("got %d: %s", code, &s.errs)
	}
	return status
}

// denied wants no certificate, for a reason.
func denied(t *testing.T, what string, status csr.Status, reason string) {
	t.Helper()
	if len(status.Certificate) != 0 || len(status.Conditions) != 1 || status.Conditions[0].Type != csr.ConditionDenied || status.Conditions[0].Reason != reason {
		t.Errorf("%s: got %+v, want Denied, %s", what, status, reason)
	}
}

// TestServer has TPMs enrol over HTTPS. One that is not on the list, another one's answer, a
// changed one, and one that a CA with another ring asked for, get the same replies as by files.
func TestServer(t *testing.T) {
	device, strange := tpmsim.Swtpm(t, tpmsim.Options{}), tpmsim.Swtpm(t, tpmsim.Options{})
	ours, second := newMachine(t, device, "node-1"), newMachine(t, strange, "node-2")
	f := filesOf(t, string(ours.identity)+" node-1\n"+string(second.identity)+" node-2\n")
	s := serveHTTPS(t, f, limits)
	now := func() *ca { return s.opened.Load().ca }

	hello := ours.hello(t, now())
	challenged := s.ask(t, hello)
	answer := ours.answer(t, hello, challenged)
	for range 2 { // a replay is of use to that TPM only
		if status := s.ask(t, answer); len(status.Certificate) == 0 {
			t.Errorf("got %+v", status)
		}
	}
	if got := s.out.String(); strings.Count(got, "node-1 othername:ours/") != 2 || strings.Count(got, "\n") != 2 {
		t.Errorf("it says %q", got)
	}

	denied(t, "a TPM that is not on the list", s.ask(t, newMachine(t, tpmsim.Swtpm(t, tpmsim.Options{}), "node-1").hello(t, now())), "EkUntrusted")
	denied(t, "another machine's name", s.ask(t, newMachine(t, device, "node-2").hello(t, now())), "NotAMember")
	denied(t, "a name that is not on the list", s.ask(t, newMachine(t, device, "node-3").hello(t, now())), "MachineUnknown")
	theirs := second.hello(t, now())
	theirAnswer := second.answer(t, theirs, s.ask(t, theirs))
	mixed := *theirAnswer
	mixed.Request = splice(t, answer.Request, theirAnswer.Request)
	denied(t, "the answer of another TPM", s.ask(t, &mixed), "BindingRequest")
	changed := *answer
	changed.ExpirationSeconds = new(int32(3600))
	denied(t, "a changed answer", s.ask(t, &changed), "BindingExpiration")

	f.ring += ".other"
	testkit.MustDo(s.read())
	denied(t, "a replay to a CA with another ring", s.ask(t, answer), "RingKey")
}

// splice puts the evidence of one request next to the first block of another.
func splice(t *testing.T, request, evidence []byte) []byte {
	t.Helper()
	const end = "-----END CERTIFICATE REQUEST-----\n"
	first, _, ok := bytes.Cut(request, []byte(end))
	_, rest, also := bytes.Cut(evidence, []byte(end))
	if !ok || !also {
		t.Fatal("requests of another form")
	}
	return append(append(bytes.Clone(first), end...), rest...)
}

// TestServerRefuses holds that invalid requests are refused without a reason.
func TestServerRefuses(t *testing.T) {
	s := serveHTTPS(t, filesOf(t, machineOfNobody), limits)
	for name, row := range map[string]struct {
		text string
		want int
	}{
		"nothing":         {"", http.StatusBadRequest},
		"no JSON":         {"{", http.StatusBadRequest},
		"a list":          {"[]", http.StatusBadRequest},
		"the largest":     {strings.Repeat(" ", int(limits.Body)), http.StatusBadRequest},
		"a larger one":    {strings.Repeat(" ", int(limits.Body)+1), http.StatusRequestEntityTooLarge},
		"a huge one":      {strings.Repeat(" ", 64*int(limits.Body)), http.StatusRequestEntityTooLarge},
		"an empty one":    {"{}", http.StatusOK}, // which says why it is denied
		"control letters": {`{"signerName": "\u001b[2J"}`, http.StatusServiceUnavailable},
	} {
		code, status := s.post(t, []byte(row.text))
		if code != row.want || len(status.Certificate) != 0 {
			t.Errorf("%s: got %d, %+v, want %d", name, code, status, row.want)
		}
	}
	if strings.ContainsRune(s.errs.String(), '\x1b') || s.out.Len() != 0 {
		t.Errorf("it says %q and %q", &s.errs, &s.out)
	}
	for name, row := range map[string]struct {
		method, path string
		want         int
	}{
		"another method": {http.MethodGet, "", http.StatusMethodNotAllowed}, "another path": {http.MethodPost, "/../ring.json", http.StatusNotFound},
	} {
		r := testkit.Must(http.NewRequestWithContext(t.Context(), row.method, s.url+row.path, nil))
		got := testkit.Must(s.client.Do(r))
		_ = got.Body.Close()
		if got.StatusCode != row.want || got.ProtoMajor != 1 || !got.Close {
			t.Errorf("%s: got %s by %s", name, got.Status, got.Proto)
		}
	}
	s.client.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS12
	s.client.CloseIdleConnections()
	if _, err := s.client.Get(s.url); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("an older TLS: %v", err)
	}
}

// TestServerLimits: so many requests, so many connections, and no longer than it has patience.
func TestServerLimits(t *testing.T) {
	short := limits
	short.Patience = 50 * time.Millisecond
	s := serveHTTPS(t, filesOf(t, machineOfNobody), short)
	t.Run("a slow client", func(t *testing.T) {
		for _, text := range []string{"", "POST /enrol HTTP/1.1\r\nHost: x\r\n", "POST /enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"} {
			bare := testkit.Must(net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "https://"), "/enrol")))
			config := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
			config.ServerName = "127.0.0.1"
			conn := tls.Client(bare, config)
			_, _ = io.WriteString(conn, text)                                            // unless the handshake is too slow for it
			if reply, _ := io.ReadAll(conn); strings.Contains(string(reply), "200 OK") { // it ends when the server hangs up
				t.Errorf("%q: got %s", text, reply)
			}
			_ = conn.Close()
		}
	})
	t.Run("a flood", func(t *testing.T) {
		s := serveHTTPS(t, filesOf(t, machineOfNobody), limits)
		s.limit = rate.NewLimiter(0, 8)
		for n, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
			if code, _ := s.post(t, []byte("{}")); code != want {
				t.Errorf("request %d: got %d, want %d", n, code, want)
			}
		}
	})
	t.Run("a flood of several addresses", func(t *testing.T) {
		s := serveHTTPS(t, filesOf(t, machineOfNobody), limits)
		s.limit = rate.NewLimiter(0, 8)
		from := func(n int) netip.Prefix { return httpserver.From(fmt.Sprintf("192.0.%d.%d:1", n>>8, n&0xff)) }
		for n, want := range []bool{true, true, false, true, true, false, true, true, false, true, true, false, false, false} {
			if got := s.allow(from(n / 3)); got != want { // two of each, and eight of all
				t.Errorf("request %d: got %t, want %t", n, got, want)
			}
		}
		for n := range 3 * maxAddresses {
			s.allow(from(n))
		}
		if len(s.each) > maxAddresses {
			t.Errorf("it counts %d addresses, want at most %d", len(s.each), maxAddresses)
		}
	})
	t.Run("slow clients of one address", func(t *testing.T) {
		s := serveHTTPS(t, filesOf(t, machineOfNobody), limits)
		at := strings.TrimSuffix(strings.TrimPrefix(s.url, "https://"), "/enrol")
		for range 3 * limits.Connections { // they send nothing
			c := testkit.Must(net.Dial("tcp", at))
			defer c.Close()
		}
		began := time.Now()
		if code, _ := s.post(t, []byte("{}")); code != http.StatusOK || time.Since(began) > limits.Patience/2 {
			t.Errorf("got %d after %s", code, time.Since(began))
		}
	})
}

// TestServerReadsAgain: a machine that leaves the list is refused. A list that cannot be read changes
// nothing.
func TestServerReadsAgain(t *testing.T) {
	m := newMachine(t, tpmsim.New(t, tpmsim.Options{}), "node-1")
	f := filesOf(t, string(m.identity)+" node-1\n")
	s := serveHTTPS(t, f, limits)
	hello := func() csr.Status { return s.ask(t, m.hello(t, s.opened.Load().ca)) }
	for _, row := range []struct {
		list, reason string
	}{
		{string(m.identity) + " node-1\n", "AttestationChallenge"},
		{"", "AttestationChallenge"},
		{machineOfNobody, "EkUntrusted"},
		{"", "EkUntrusted"},
	} {
		testkit.MustDo(os.WriteFile(f.machines, []byte(row.list), 0o600))
		if err := s.read(); (err == nil) != (row.list != "") {
			t.Errorf("with the list %q: got %v", row.list, err)
		}
		denied(t, "with the list "+row.list, hello(), row.reason)
	}
}

// TestServerEnds with its context. Before that it says where it is, and serves.
func TestServerEnds(t *testing.T) {
	s := serveHTTPS(t, filesOf(t, machineOfNobody), limits)
	said, errs := io.Pipe()
	s.server.errs, s.web.address = errs, "127.0.0.1:0"
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	lines := bufio.NewReader(said)
	line := testkit.Must(lines.ReadString('\n'))
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	s.url = strings.TrimSuffix(strings.TrimPrefix(line, "ak-ca: "), "\n")
	if code, _ := s.post(t, nil); code != http.StatusBadRequest {
		t.Errorf("got %d", code)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.web.address = "127.0.0.1:-1"
	if err := s.run(t.Context()); err == nil {
		t.Error("no address: no error")
	}
}
