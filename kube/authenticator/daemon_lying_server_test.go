package authenticator

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/csr"
)

// TestLyingAPIServer: whatever an API server answers, an attempt ends without harm.
func TestLyingAPIServer(t *testing.T) {
	l := newLies(t, 30)
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	s := &lyingServer{l: l, elsewhere: elsewhere.URL, past: [][]byte{[]byte("{}")}}
	instead(l.f, s.serve)
	first := httptest.NewUnstartedServer(l.f.server.Config.Handler) // speaks HTTP/1.1
	first.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	first.StartTLS()
	defer func() {
		first.CloseClientConnections()
		first.Close()
	}()
	l.run(func() (*Authenticator, liar) {
		a, _ := newNode(t, l.f, func(c *Config) {
			c.Serving, c.RecoverySigner = &Serving{DNSNames: []string{testNode}}, csr.SignerRecoveryTPM
			if l.IntN(2) == 0 {
				c.API = func() (*rest.Config, error) {
					r, err := l.f.config()
					r.Host = first.URL
					return r, err
				}
			}
		})
		if l.IntN(4) == 0 {
			giveRecovery(t, l.f, a)
		}
		return a, s
	})
}

// lyingServer changes some of the answers of an API server and its control plane.
type lyingServer struct {
	l         *lies
	elsewhere string

	mu    sync.Mutex
	which func(n int) bool // nil: none
	n     int              // calls
	past  [][]byte         // answers, of other turns too
	end   context.CancelFunc
}

func (s *lyingServer) lie(end context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.which, s.n, s.end = nil, 0, end
	if s.l.IntN(3) != 0 {
		s.which = s.l.which(10)
	} else {
		s.l.f.set(func() { s.l.f.decide = s.decide(s.l.which(3)) })
	}
}

func (s *lyingServer) stop() {
	s.mu.Lock()
	s.which = nil
	s.mu.Unlock()
	s.l.f.set(func() { s.l.f.decide = nil })
}

func (s *lyingServer) tidy() {}

// maxPast is how many answers are remembered, and maxRemembered how large each may be, in bytes.
const (
	maxPast       = 50
	maxRemembered = 64 << 10
)

// turn counts a call, and says whether there is a lie about it.
func (s *lyingServer) turn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return s.which != nil && s.which(s.n)
}

// serve answers instead of the server if it lies.
func (s *lyingServer) serve(w http.ResponseWriter, r *http.Request) bool {
	if q := r.URL.Query(); q.Get("watch") != "" {
		if _, err := strconv.Atoi(q.Get("resourceVersion")); err != nil { // it is from a lie
			fail(w, http.StatusGone, metav1.StatusReasonExpired)
			return true
		}
	}
	if !s.turn() {
		return false
	}
	f := s.l.f
	f.mu.Lock()
	user, _ := f.user(r)
	f.mu.Unlock()
	if user == "" { // it does not lie about a 401: no other server could tell
		return false
	}
	sent, err := httputil.DumpRequest(r, false)
	if err != nil {
		f.t.Error(err)
	}
	c := &call{ResponseWriter: w, s: s, r: r, sent: sent, code: http.StatusOK}
	if r.URL.Query().Get("watch") != "" {
		c.body = s.event(r)
	} else {
		honest := httptest.NewRecorder()
		f.serve(honest, r)
		c.code, c.body = honest.Code, honest.Body.Bytes()
	}
	s.mu.Lock()
	if len(c.body) < maxRemembered {
		s.past = append(s.past[max(0, len(s.past)-maxPast):], c.body)
	}
	c.earlier = oneOf(s.l, s.past)
	s.mu.Unlock()
	lie := oneOf(s.l, serverLies)
	s.l.count(lie.name)
	w.Header().Set("Content-Type", "application/json")
	lie.tell(c)
	return true
}

// event returns the event of a watch, once the request is decided.
func (s *lyingServer) event(r *http.Request) []byte {
	time.Sleep(5 * time.Millisecond)
	f := s.l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	return eventOf(f, "MODIFIED", f.objects[strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")])
}

func eventOf(f *fakeAPI, kind string, object any) []byte {
	text, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		f.t.Error(err)
	}
	return append(text, '\n')
}

// call is one that is lied about.
type call struct {
	http.ResponseWriter
	s    *lyingServer
	r    *http.Request
	sent []byte // its header, with the credential
	// The true answer, and one to another call.
	code    int
	body    []byte
	earlier []byte
}

// answer answers.
func (c *call) answer(code int, body []byte) {
	c.WriteHeader(code)
	_, _ = c.Write(body)
}

// endless writes a text, and another one as long as the client reads it.
func (c *call) endless(code int, begin, more string) {
	c.WriteHeader(code)
	_, err := io.WriteString(c, begin)
	more = strings.Repeat(more, 1+4096/len(more))
	for err == nil && c.r.Context().Err() == nil {
		_, err = io.WriteString(c, more)
	}
}

// silence says no more.
func (c *call) silence() {
	c.s.mu.Lock()
	c.s.end()
	c.s.mu.Unlock()
	_, _ = io.Copy(io.Discard, c.r.Body) // before that it is not known whether the node has gone
	<-c.r.Context().Done()
}

func (c *call) watches() bool { return c.r.URL.Query().Get("watch") != "" }

// tree changes the answer's JSON in one place.
func (c *call) tree() []byte {
	var tree any
	if json.Unmarshal(c.body, &tree) != nil {
		return c.body
	}
	var places []func(v any)
	var values []any
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				places, values = append(places, func(n any) { v[name] = n }), append(values, v[name])
				visit(v[name])
			}
			places = append(places, func(n any) { v[oneOf(c.s.l, members)] = n })
		case []any:
			for i := range v {
				places, values = append(places, func(n any) { v[i] = n }), append(values, v[i])
				visit(v[i])
			}
		}
	}
	visit(tree)
	strange := []any{nil, true, -1, 1e300, "", "..", "\x1b[2J\n\u202e", strings.Repeat("a", 1<<16), strings.Repeat("é\n", 1<<12), []any{}, map[string]any{}, []any{nil, 1, "a"},
		string(c.sent), "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", string(c.earlier), json.RawMessage(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))}
	if len(places) == 0 {
		return c.body
	}
	value := oneOf(c.s.l, strange)
	if c.s.l.IntN(3) == 0 {
		value = oneOf(c.s.l, values)
	}
	oneOf(c.s.l, places)(value)
	text, err := json.Marshal(tree)
	if err != nil {
		return c.body
	}
	return append(text, '\n')
}

// members are names that a server's objects have.
var members = []string{"name", "uid", "generateName", "resourceVersion", "deletionTimestamp", "status", "conditions", "certificate", "request", "message", "reason", "username", "kind", "code", "x"}

const requestHead = `{"kind":"CertificateSigningRequest","apiVersion":"certificates.k8s.io/v1","metadata":{"name":"a","uid":"u"`

// serverLies are the lies.
var serverLies = []struct {
	name string
	tell func(c *call)
}{
	{"silence", (*call).silence},
	{"half an answer, and silence", func(c *call) {
		c.answer(c.code, c.body[:len(c.body)/2])
		c.ResponseWriter.(http.Flusher).Flush()
		c.silence()
	}},
	{"another code", func(c *call) {
		c.answer(oneOf(c.s.l, []int{200, 201, 202, 204, 206, 208, 226, 299, 300, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413, 415, 418, 422, 423, 429, 451, 499, 500, 501, 502, 503, 504, 507, 511, 599, 999}), c.body)
	}},
	{"a failure", func(c *call) {
		code := oneOf(c.s.l, []int{400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504})
		answer(c, code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": string(c.sent), "reason": oneOf(c.s.l, []string{"", "Unauthorized", "Forbidden", "NotFound", "Expired", "AlreadyExists", "Timeout", "\x1b"}),
			"details": map[string]any{"name": string(c.sent), "retryAfterSeconds": oneOf(c.s.l, []int{0, 1, -1, 1 << 30}), "causes": []map[string]string{{"message": string(c.sent), "field": string(c.sent)}}}})
	}},
	{"a redirect", func(c *call) {
		c.Header().Set("Location", oneOf(c.s.l, []string{c.s.elsewhere + c.r.URL.String(), c.r.URL.String(), "", "http://127.0.0.1:1/"}))
		c.answer(oneOf(c.s.l, []int{301, 302, 303, 307, 308}), c.body)
	}},
	{"cut off", func(c *call) {
		c.Header().Set("Content-Length", strconv.Itoa(len(c.body)))
		c.answer(c.code, c.body[:c.s.l.IntN(len(c.body)+1)])
		panic(http.ErrAbortHandler)
	}},
	{"cut", func(c *call) { c.answer(c.code, c.body[:c.s.l.IntN(len(c.body)+1)]) }},
	{"bits", func(c *call) {
		b := bytes.Clone(c.body)
		for range 1 + c.s.l.IntN(3) {
			b[c.s.l.IntN(len(b))] ^= 1 << c.s.l.IntN(8)
		}
		c.answer(c.code, b)
	}},
	{"another value", func(c *call) { c.answer(c.code, c.tree()) }},
	{"another value, too", func(c *call) {
		c.body = c.tree()
		c.answer(c.code, c.tree())
	}},
	{"another answer", func(c *call) { c.answer(c.code, c.earlier) }},
	{"another kind", func(c *call) {
		c.answer(c.code, []byte(oneOf(c.s.l, []string{"null", "[]", `""`, "0", "{}", `{"kind":"Pod","apiVersion":"v1"}`, `{"kind":"CertificateSigningRequestList","apiVersion":"certificates.k8s.io/v1","items":[{}]}`,
			requestHead + `}}`, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, `{"kind":"List","apiVersion":"v1","items":null}`, "kind: CertificateSigningRequest\n", "k8s\x00\x0a\x00"})))
	}},
	{"headers", func(c *call) {
		for name, value := range map[string]string{"Warning": `299 - "` + strings.ReplaceAll(string(c.sent), "\r\n", " ") + `"`, "WWW-Authenticate": "Bearer " + c.r.Header.Get("Authorization"), "Retry-After": "1000",
			"Content-Encoding": "gzip", "Content-Type": oneOf(c.s.l, []string{"application/vnd.kubernetes.protobuf", "application/yaml", "text/html", "a;b", "", "application/cbor", "application/json;stream=watch"}),
			"X-Long": strings.Repeat("a", c.s.l.IntN(1<<18)), "Set-Cookie": "a=b", "Content-Range": "bytes 0-1/2", "Audit-Id": "\t", "Alt-Svc": `h3=":1"`} {
			if c.s.l.IntN(2) == 0 {
				c.Header().Set(name, value)
			}
		}
		c.answer(oneOf(c.s.l, []int{c.code, 401, 429, 503}), c.body)
	}},
	{"hints", func(c *call) {
		for range 1 + c.s.l.IntN(2000) {
			c.Header().Set("Link", strings.Repeat("a", 100))
			c.WriteHeader(http.StatusEarlyHints)
		}
		c.answer(c.code, c.body)
	}},
	{"an echo", func(c *call) {
		c.Header().Set("Content-Type", oneOf(c.s.l, []string{"text/plain", "text/html", "application/json"}))
		c.answer(oneOf(c.s.l, []int{200, 400, 403, 502}), c.sent)
	}},
	{"depth", func(c *call) { c.endless(c.code, requestHead+`,"a":`, oneOf(c.s.l, []string{"[", `{"a":`, `[{"a":`})) }},
	{"no end", func(c *call) {
		c.endless(c.code, requestHead+`}`, oneOf(c.s.l, []string{" ", `,"a":"b"`, `,"status":{"conditions":[{}]}`, "\n"}))
	}},
	{"a long text", func(c *call) {
		c.endless(oneOf(c.s.l, []int{c.code, 400}), requestHead+`,"annotations":{"a":"`, oneOf(c.s.l, []string{"a", `\n`, `\u0000`, "é", string(c.sent[:3])}))
	}},
	{"a long list", func(c *call) { c.endless(c.code, requestHead+`},"status":{"conditions":[{}`, `,{"type":"a"}`) }},
	{"many headers", func(c *call) {
		for n := range 5000 {
			c.Header().Set("A-"+strconv.Itoa(n), c.r.Header.Get("Authorization"))
		}
		c.answer(c.code, c.body)
	}},
	{"bytes", (*call).bytes},
	{"events", (*call).events},
	{"an event", func(c *call) {
		object := oneOf(c.s.l, []any{nil, 1, map[string]any{}, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": string(c.sent), "code": oneOf(c.s.l, []int{401, 403, 410, 500})}, json.RawMessage(requestHead + "}}")})
		c.answer(http.StatusOK, eventOf(c.s.l.f, oneOf(c.s.l, []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "\x1b"}), object))
	}},
}

// events sends events without end, none of which decides.
func (c *call) events() {
	if !c.watches() {
		c.endless(c.code, "", string(c.body))
		return
	}
	f := c.s.l.f
	f.mu.Lock()
	o := f.objects[strings.TrimPrefix(c.r.URL.Query().Get("fieldSelector"), "metadata.name=")]
	f.mu.Unlock()
	if o == nil {
		o = &certificatesv1.CertificateSigningRequest{}
	}
	o = o.DeepCopy()
	o.Status = certificatesv1.CertificateSigningRequestStatus{}
	switch c.s.l.IntN(3) {
	case 0:
		o.Name = "another"
	case 1:
		condition(o, "X", string(c.sent), string(c.sent))
	}
	c.endless(http.StatusOK, "", string(eventOf(f, oneOf(c.s.l, []string{"ADDED", "MODIFIED", "BOOKMARK"}), o)))
}

// bytes are of HTTP/1.1, and without end.
func (c *call) bytes() {
	hijacker, ok := c.ResponseWriter.(http.Hijacker)
	if !ok {
		c.silence()
		return
	}
	conn, _, err := hijacker.Hijack()
	if err != nil {
		c.s.l.t.Error(err)
		return
	}
	const ok200, object = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", requestHead + "}}"
	text := oneOf(c.s.l, [][2]string{
		{"", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"},
		{"", "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
		{"", ok200 + "Content-Length: 0\r\n\r\n"},
		{"", string(c.sent)},
		{"HTTP/1.1 200 ", "a"},
		{ok200, "A: b\r\n"},
		{ok200 + "A: ", "b"},
		{ok200 + "Content-Length: 9223372036854775807\r\n\r\n" + object, " "},
		{ok200 + "Transfer-Encoding: chunked\r\n\r\n", "1;" + strings.Repeat("x", 500) + "\r\n \r\n"},
		{ok200 + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n"},
	})
	_, err = io.WriteString(conn, text[0])
	for more := strings.Repeat(text[1], 1+4096/len(text[1])); err == nil; {
		_, err = io.WriteString(conn, more)
	}
	_ = conn.Close() // as the node has done
}
