// Package fetch sends HTTP requests within limits on time, on the sizes of header and body, and on
// redirects. Its errors do not contain the URL, whose query may be a secret, and a panic of the
// transport is the error of one request.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/nodeattest/nodeattest/recovered"
)

// Limits are one caller's limits for a server.
type Limits struct {
	// Timeout bounds a request, from dialling to the last byte of the body. Zero leaves it to the
	// context.
	Timeout time.Duration
	// Header bounds the header of a response, in bytes. Zero means 64 KiB.
	Header int64
	// Idle is how long a connection is kept for the next request. Zero closes it after each.
	Idle time.Duration
	// Redirect decides whether a redirect is followed, as in [http.Client]. Nil follows none: the
	// redirect is the response.
	Redirect func(next *http.Request, via []*http.Request) error
}

// Transport makes a transport with the limits on headers and connections, which does not decompress.
func (l Limits) Transport(proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	return &http.Transport{Proxy: proxy, DisableCompression: true, MaxResponseHeaderBytes: cmp.Or(l.Header, 64<<10), DisableKeepAlives: l.Idle == 0, IdleConnTimeout: l.Idle}
}

// Client makes a client with the limits on time and redirects.
func (l Limits) Client(transport http.RoundTripper) *http.Client {
	if l.Redirect == nil {
		l.Redirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return &http.Client{Transport: transport, Timeout: l.Timeout, CheckRedirect: l.Redirect}
}

// ErrRequest is the error of an invalid method or URL: nothing was sent.
var ErrRequest = errors.New("a request that cannot be made")

// Do sends a request without a body. The caller closes the body of the response.
func Do(ctx context.Context, client *http.Client, method, to string, header map[string]string) (response *http.Response, err error) {
	request, err := http.NewRequestWithContext(ctx, method, to, nil)
	if err != nil {
		return nil, ErrRequest
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	err = recovered.Call(func() (err error) {
		response, err = client.Do(request)
		return err
	})
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// Body reads the body of a response. If it has more than limit bytes, more is true and body has one
// byte more than the limit.
func Body(response *http.Response, limit int) (body []byte, more bool, err error) {
	err = recovered.Call(func() (err error) {
		body, err = io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
		return err
	})
	return body, len(body) > limit, err
}
