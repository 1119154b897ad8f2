package apiclient

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/refusal"
)

// checkServerCertificate: the API server's certificate does not verify.
const checkServerCertificate refusal.Check = "api-server-certificate"

const (
	// window is how many consecutive bytes of a credential count as one: a text may have been
	// cut, by a server or by client-go.
	window = 8
	// maxRead bounds how much of a text is read, in bytes.
	maxRead = 64 << 10
)

// secrets are the windows of the credentials in use.
type secrets map[string]bool

// secretsOf returns those of a configuration: its token, its password, and that of its proxy.
func secretsOf(c *rest.Config) secrets {
	s := secrets{}
	s.add(c.BearerToken)
	s.addUser(c.Username, c.Password)
	proxy := c.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	if r, err := http.NewRequest(http.MethodGet, c.Host, nil); err == nil {
		if u, err := proxy(r); err == nil && u != nil && u.User != nil {
			password, _ := u.User.Password()
			s.addUser(u.User.Username(), password)
		}
	}
	return s
}

func (s secrets) addUser(name, password string) {
	if password != "" {
		s.add(password)
		s.add(url.QueryEscape(password))
		s.add(base64.StdEncoding.EncodeToString([]byte(name + ":" + password)))
	}
}

func (s secrets) add(credential string) {
	if credential == "" {
		return
	}
	size := min(window, len(credential))
	for n := range len(credential) - size + 1 {
		s[credential[n:n+size]] = true
	}
}

// redact replaces what of a text is in a credential.
func (s secrets) redact(text string) string {
	text = text[:min(len(text), maxRead)]
	var b strings.Builder
	shown := 0 // up to here
	hidden := 0
	for n := range len(text) {
		end := 0
		for size := window; size > 0 && end == 0; size-- {
			if n+size <= len(text) && s[text[n:n+size]] {
				end = n + size
			}
		}
		switch {
		case end == 0:
			continue
		case n >= hidden:
			b.WriteString(text[max(shown, hidden):n])
			b.WriteString("(secret)")
		}
		hidden = max(hidden, end)
		shown = hidden
	}
	b.WriteString(text[shown:])
	return b.String()
}

// clean makes an error of client-go one that can be shown, in which errors.Is finds the
// context's errors, and with which apierrors tells what the server's answer was.
func (c *Client) clean(err error) error {
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		text := c.text(s.Message)
		if text == "" {
			text = fmt.Sprintf("an answer of status %d", s.Code)
		}
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: s.Code, Reason: metav1.StatusReason(c.text(string(s.Reason))), Message: text}}
	}
	if own := (*refusal.Error)(nil); errors.As(err, &own) {
		return own
	}
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err // without the URL
	}
	text := c.text(err.Error())
	if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
		return &refusal.Error{Check: checkServerCertificate, Got: c.text(untrusted.Err.Error())}
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return &refusal.Error{Check: refusal.ErrRetry, Got: text, Err: known}
		}
	}
	return refusal.Retry(errors.New(text))
}

func (c *Client) text(s string) string { return refusal.Text(c.used.redact(s)) }
