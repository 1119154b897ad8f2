// Package metadata queries the metadata servers that clouds provide for their machines, at
// link-local addresses. They are queried directly, whatever proxy the environment names, and
// each question has time and size limits.
package metadata

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/fetch"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckMetadata: the machine's metadata server gives no usable answer. If it may do so later,
// errors.Is also finds refusal.ErrRetry.
const CheckMetadata refusal.Check = "metadata-server"

const (
	// DefaultTimeout is how long one question may take, including all tries. Azure says that a
	// server that is being updated answers again within 70 seconds.
	DefaultTimeout = 75 * time.Second
	// firstDelay is the delay between the first two tries. Each later delay is twice as long,
	// up to lastDelay.
	firstDelay = 100 * time.Millisecond
	lastDelay  = 5 * time.Second
)

// limits bound one try.
var limits = fetch.Limits{Timeout: 10 * time.Second, Header: 16 << 10}

// Client asks one metadata server. It keeps no connection, and is safe for concurrent use.
type Client struct {
	url     string
	timeout time.Duration
	http    *http.Client
}

// URL is the address of the metadata server in every cloud here. It is used directly, so that no name
// server is trusted.
const URL = "http://169.254.169.254"

// New makes a client for the server at a URL "http://host" or "http://host:port", or at [URL] if
// that is empty. A timeout of zero means [DefaultTimeout]. The error is refusal.CheckConfig.
func New(server string, timeout time.Duration) (*Client, error) {
	server = cmp.Or(server, URL)
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || server != "http://"+u.Host {
		return nil, refusal.Config("URL", server, "http://<host> or http://<host>:<port>")
	}
	if timeout < 0 {
		return nil, refusal.Config("Timeout", timeout.String(), "a positive one, or zero")
	}
	return &Client{url: server, timeout: cmp.Or(timeout, DefaultTimeout), http: limits.Client(limits.Transport(nil))}, nil // no proxy, not even the environment's
}

// Request is one question.
type Request struct {
	// Method is the method; "" means GET.
	Method string
	// Path begins with a slash, and includes the query.
	Path string
	// Header is sent with the request: one value each.
	Header map[string]string
	// MaxSize is the size of the longest answer that is read, in bytes.
	MaxSize int
	// Secret keeps the answer out of errors, whatever its status.
	Secret bool
	// Answer is a field that the header of this cloud's answers has, with its value; an empty
	// name means none.
	Answer, Value string
	// Again are the statuses that pass in this cloud, in addition to the statuses that pass in all.
	Again []int
	// Wants names, by status, the missing part of the machine if the server answers with it, and 0
	// if it does not answer at all.
	Wants map[int]string
}

// wants names the missing part of the machine for a status.
func (r *Request) wants(status int, otherwise string) string {
	return cmp.Or(r.Wants[status], otherwise)
}

// Do asks, and asks again if the server does not answer or says that it is busy, until the
// client's timeout. The error is a [*refusal.Error] with [CheckMetadata]; StatusOf reads it.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, error) {
	if c == nil || ctx == nil {
		return nil, fail("no client, or no context", "one that New made", nil)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var last error
	for delay := firstDelay; ; delay = min(2*delay, lastDelay) {
		body, err := c.try(ctx, r)
		if err == nil || !errors.Is(err, refusal.ErrRetry) {
			return body, err
		}
		if ctx.Err() != nil && last != nil {
			return nil, last // the server's answer, and not that the time is over
		}
		last = err
		if Sleep(ctx, delay) != nil {
			return nil, err
		}
	}
}

// Sleep waits, at most until the context ends; then it returns the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try asks once.
func (c *Client) try(ctx context.Context, r Request) ([]byte, error) {
	response, err := fetch.Do(ctx, c.http, cmp.Or(r.Method, http.MethodGet), c.url+r.Path, r.Header)
	if errors.Is(err, fetch.ErrRequest) {
		return nil, fail("a request that cannot be made", "one", err)
	}
	if err != nil {
		return nil, fail("no answer", r.wants(0, "an answer of the metadata server"), refusal.Retry(err))
	}
	defer response.Body.Close()
	body, more, err := fetch.Body(response, r.MaxSize)
	switch status := response.StatusCode; {
	case err != nil:
		return nil, fail("a part of an answer", "all", refusal.Retry(err))
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500, slices.Contains(r.Again, status):
		return nil, r.refused(status, body, refusal.ErrRetry)
	case r.Answer != "" && response.Header.Get(r.Answer) != r.Value:
		return nil, fail("another server's answer: "+r.Answer+" "+refusal.Quote(response.Header.Get(r.Answer)), refusal.Quote(r.Value), nil)
	case status != http.StatusOK:
		return nil, r.refused(status, body, nil)
	case more:
		return nil, fail("over "+strconv.Itoa(r.MaxSize)+" bytes", "at most so many", nil)
	}
	return body, nil
}

// statusError is an answer with a status other than 200.
type statusError struct {
	refusal *refusal.Error
	status  int
	body    []byte
}

func (e *statusError) Error() string { return e.refusal.Error() }
func (e *statusError) Unwrap() error { return e.refusal }

// refused is the error of a status. It shows the answer only where the server says that it is an error:
// with another status it may be the secret itself, such as credentials.
func (r *Request) refused(status int, body []byte, err error) error {
	said := "status " + strconv.Itoa(status)
	if status >= http.StatusBadRequest && !r.Secret {
		said += ", " + refusal.Quote(string(body))
	}
	return &statusError{&refusal.Error{Check: CheckMetadata, Got: said, Want: r.wants(status, "status 200"), Err: err}, status, body}
}

// StatusOf returns the status and the body with which a server refused a request; 0 if the
// error is another.
func StatusOf(err error) (status int, body []byte) {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status, e.body
	}
	return 0, nil
}

func fail(got, want string, err error) error {
	return &refusal.Error{Check: CheckMetadata, Got: got, Want: want, Err: err}
}
