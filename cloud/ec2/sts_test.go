package ec2

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// stsFunc is an STS.
type stsFunc func(*http.Request) (*http.Response, error)

func (f stsFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// says is an STS that gives one answer.
func says(status int, body string) stsFunc {
	return func(*http.Request) (*http.Response, error) { return answer(status, body), nil }
}

// TestAnswers: what STS says, and whether it says it about the node.
func TestAnswers(t *testing.T) {
	l := newLab(t)
	right := good(sessions()["instance"].ARN)
	redirect := answer(http.StatusFound, "")
	redirect.Header.Set("Location", "https://sts.us-west-2.amazonaws.com/?Action=GetCallerIdentity")
	for name, c := range map[string]struct {
		sts   stsFunc
		want  refusal.Check
		retry bool
	}{
		"good":                   {says(200, right), "", false},
		"as long as can be":      {says(200, right+strings.Repeat(" ", maxAnswer-len(right))), "", false},
		"over 64 KiB":            {says(200, right+strings.Repeat(" ", maxAnswer+1-len(right))), checkSize, true},
		"a long refusal":         {says(403, fault("AccessDenied")+strings.Repeat(" ", maxAnswer)), checkSize, true},
		"without an end":         {func(*http.Request) (*http.Response, error) { return endless(), nil }, checkSize, true},
		"two results":            {says(200, strings.Replace(right, "<ResponseMetadata>", right[strings.Index(right, "<GetCallerIdentityResult>"):strings.Index(right, "<ResponseMetadata>")]+"<ResponseMetadata>", 1)), checkAnswer, true},
		"nothing":                {says(200, ""), checkAnswer, true},
		"a page":                 {says(200, "<html></html>"), checkAnswer, true},
		"JSON":                   {says(200, `{"GetCallerIdentityResponse":{"GetCallerIdentityResult":{"Account":"123456789012"}}}`), checkAnswer, true},
		"no connection":          {func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, checkSTS, true},
		"cut off":                {func(*http.Request) (*http.Response, error) { return cut(right), nil }, checkSTS, true},
		"elsewhere":              {func(*http.Request) (*http.Response, error) { return redirect, nil }, checkSTS, true},
		"a good redirect":        {says(301, right), checkSTS, true},
		"not found":              {says(404, fault("NotFound")), checkSTS, true},
		"a page that refuses":    {says(403, "<html>Forbidden</html>"), checkSTS, true},
		"busy":                   {says(503, fault("ServiceUnavailable")), checkSTS, true},
		"out of order":           {says(500, ""), checkSTS, true},
		"too many":               {says(400, fault("Throttling")), checkSTS, true},
		"a bad signature":        {says(403, fault("SignatureDoesNotMatch")), checkRefused, false},
		"credentials that ended": {says(403, fault("ExpiredToken")), checkRefused, false},
		"a bad request":          {says(400, fault("IncompleteSignature")), checkRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			p := l.platform(t, stsFunc(func(r *http.Request) (*http.Response, error) { asked++; return c.sts(r) }))
			err := verify(p, l.good().marshal(), testTime)
			if (err == nil) != (c.want == "") || err != nil && !errors.Is(err, c.want) || errors.Is(err, refusal.ErrRetry) != c.retry || asked != 1 {
				t.Errorf("%v, want %q, retry %v; asked %d times", err, c.want, c.retry, asked)
			}
			if err != nil && (strings.Contains(err.Error(), "example+token") || strings.Contains(err.Error(), "example%2Btoken")) {
				t.Errorf("the token is in %v", err)
			}
			if c.want == checkRefused && !strings.Contains(err.Error(), "file again") {
				t.Errorf("%v", err)
			}
		})
	}
}

func endless() *http.Response {
	r := answer(200, "")
	r.Body = io.NopCloser(zeros{})
	return r
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func cut(body string) *http.Response {
	r := answer(200, "")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), failing{}))
	return r
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestWhatIsSent: the request is made anew for the endpoint of the document's region, and nothing
// but the challenge's header goes with it.
func TestWhatIsSent(t *testing.T) {
	l := newLab(t)
	evidence := l.good()
	var sent sentRequest
	evidence.sent = func(s *sentRequest) { sent = *s }
	var got *http.Request
	p := l.platform(t, stsFunc(func(r *http.Request) (*http.Response, error) {
		got = r
		return imitation(sessions()).RoundTrip(r)
	}))
	if err := verify(p, evidence.marshal(), testTime); err != nil {
		t.Fatal(err)
	}
	deadline, bounded := got.Context().Deadline()
	if got.Method != http.MethodGet || got.URL.String() != sent.url || got.Host != "sts.us-east-2.amazonaws.com" || got.Body != nil && got.Body != http.NoBody ||
		len(got.Header) != 1 || got.Header.Get(valueHeader) != sent.headers[0].value || !bounded || time.Until(deadline) > callTimeout {
		t.Errorf("%s %s, %v, until %v", got.Method, got.URL, got.Header, deadline)
	}
}

// TestHangingEndpoint: a question ends with who asks. While four hang, others are put off and
// not asked.
func TestHangingEndpoint(t *testing.T) {
	l := newLab(t)
	asked := make(chan struct{}, maxCalls+1)
	p := l.platform(t, stsFunc(func(r *http.Request) (*http.Response, error) {
		asked <- struct{}{}
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, maxCalls)
	data := l.good().marshal()
	for range maxCalls {
		go func() {
			_, err := p.Verify(ctx, data, inquiry(testTime))
			done <- err
		}()
		<-asked
	}
	if err := verify(p, data, testTime); !errors.Is(err, checkSTS) || !errors.Is(err, refusal.ErrRetry) || len(asked) != 0 {
		t.Errorf("the fifth: %v", err)
	}
	cancel()
	for range maxCalls {
		if err := <-done; !errors.Is(err, checkSTS) || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n := len(p.sts.busy); n != 0 {
		t.Errorf("%d are busy", n)
	}
}

// TestDefaultTransport: without a transport of the caller's, a proxy of the environment only
// carries the connection, and who answers instead of STS is not believed.
func TestDefaultTransport(t *testing.T) {
	l := newLab(t)
	p := l.platform(t, nil)
	transport, ok := p.sts.client.Transport.(*http.Transport)
	if !ok || transport.Proxy == nil || transport.TLSClientConfig != nil || transport.MaxResponseHeaderBytes != 16<<10 {
		t.Fatalf("%+v", p.sts.client.Transport)
	}
	someone := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	someone.Config.ErrorLog = log.New(io.Discard, "", 0)
	someone.StartTLS()
	defer someone.Close()
	transport.Proxy = nil
	address := someone.Listener.Addr()
	transport.DialContext = dialer(address.Network(), address.String())
	if err := verify(p, l.good().marshal(), testTime); !errors.Is(err, checkSTS) || !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

// dialer connects to one address, whatever is asked for.
func dialer(network, address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}
