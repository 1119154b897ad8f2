package ec2

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/fetch"
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

// limits bound one call.
var limits = fetch.Limits{Timeout: callTimeout, Header: 16 << 10, Idle: time.Minute}

var errBusy = errors.New(strconv.Itoa(maxCalls) + " other requests are being sent")

// sts asks AWS' Security Token Service which credentials signed a request.
type sts struct {
	client *http.Client
	busy   chan struct{} // an element for each call under way
}

func newSTS(transport http.RoundTripper) *sts {
	if transport == nil {
		// The proxy only carries the connection: all of it is TLS.
		transport = limits.Transport(http.ProxyFromEnvironment)
	}
	return &sts{busy: make(chan struct{}, maxCalls), client: limits.Client(transport)}
}

// caller sends a request to an endpoint and reads the signer in the answer.
func (s *sts) caller(ctx context.Context, r *signedRequest, e *endpoint) (*caller, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		return nil, unread(checkSTS, "no call to STS", "one", errBusy)
	}
	response, err := fetch.Do(ctx, s.client, http.MethodGet, r.url(e), map[string]string{valueHeader: hex.EncodeToString(r.value)})
	if err != nil {
		return nil, unread(checkSTS, "no answer", "one of "+e.host, err)
	}
	defer response.Body.Close()
	body, more, err := fetch.Body(response, maxAnswer)
	if err != nil {
		return nil, unread(checkSTS, "a part of an answer", "all of the answer of "+e.host, err)
	}
	if more {
		return nil, unread(checkSize, "over "+strconv.Itoa(maxAnswer)+" bytes", "at most so many", nil)
	}
	status := response.StatusCode
	if status == http.StatusOK {
		return parseAnswer(body)
	}
	said := "status " + strconv.Itoa(status)
	code, ok := parseFault(body)
	if ok {
		said += ", " + refusal.Quote(code)
	}
	if ok && (status == http.StatusBadRequest || status == http.StatusForbidden) && !strings.Contains(code, "Throttl") {
		return nil, checkRefused.Refuse(said, "a request that STS accepts, of credentials and a time that are good: file again")
	}
	return nil, unread(checkSTS, said, "an answer of "+e.host, nil)
}

// unread is the error of a node that could not be decided about.
func unread(check refusal.Check, got, want string, err error) error {
	if err == nil {
		err = refusal.ErrRetry
	}
	return &refusal.Error{Check: check, Got: got, Want: want, Err: refusal.Retry(err)}
}
