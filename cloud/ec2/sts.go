package ec2

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Checks on STS' side. All but checkRefused pass by themselves: errors.Is also finds
// [refusal.ErrRetry].
const (
	// checkSTS: STS gives no answer.
	checkSTS refusal.Check = "ec2-sts"
	// checkSize: its answer has more than 64 KiB.
	checkSize refusal.Check = "ec2-sts-size"
	// checkRefused: it refuses the request.
	checkRefused refusal.Check = "ec2-sts-refused"
)

const (
	maxAnswer   = 64 << 10
	maxCalls    = 4 // at once
	callTimeout = 10 * time.Second
)

var errBusy = errors.New(strconv.Itoa(maxCalls) + " other requests are being sent")

// sts asks AWS' Security Token Service whose credentials signed a request.
type sts struct {
	client *http.Client
	busy   chan struct{} // an element for each call under way
}

func newSTS(transport http.RoundTripper) *sts {
	if transport == nil {
		// The proxy only carries the connection: all of it is TLS.
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10, IdleConnTimeout: time.Minute}
	}
	return &sts{busy: make(chan struct{}, maxCalls), client: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// caller sends a request to an endpoint and reads who signed it.
func (s *sts) caller(ctx context.Context, r *signedRequest, e *endpoint) (*caller, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		return nil, unread(checkSTS, "no call", "one", errBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, body, err := s.send(ctx, r, e)
	if err != nil {
		return nil, unread(checkSTS, "no answer", "one of "+e.host, err)
	}
	if len(body) > maxAnswer {
		return nil, unread(checkSize, "over "+strconv.Itoa(maxAnswer)+" bytes", "at most so many", nil)
	}
	if status == http.StatusOK {
		return parseAnswer(body)
	}
	said := "status " + strconv.Itoa(status)
	code, ok := parseFault(body)
	if ok {
		said += ", " + refusal.Quote(code)
	}
	if ok && (status == http.StatusBadRequest || status == http.StatusForbidden) && !strings.Contains(code, "Throttl") {
		return nil, refuse(checkRefused, said, "a request that STS accepts, of credentials and a time that are good: file again")
	}
	return nil, unread(checkSTS, said, "an answer of "+e.host, nil)
}

// send sends a request that it makes anew. Its errors do not have the URL, which has a token.
func (s *sts) send(ctx context.Context, r *signedRequest, e *endpoint) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url(e), nil)
	if err != nil {
		return 0, nil, errors.New("a request that cannot be made")
	}
	request.Header.Set(valueHeader, hex.EncodeToString(r.value))
	response, err := s.client.Do(request)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	return response.StatusCode, body, err
}

// unread says that nothing could be found out about a node.
func unread(check refusal.Check, got, want string, err error) error {
	if err == nil {
		err = refusal.ErrRetry
	}
	return &refusal.Error{Check: check, Got: got, Want: want, Err: refusal.Retry(err)}
}
