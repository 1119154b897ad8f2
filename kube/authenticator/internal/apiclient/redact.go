package apiclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckServerCertificate is the check that fails if the API server's certificate does not verify.
const CheckServerCertificate refusal.Check = "api-server-certificate"

const (
	// piece is the number of consecutive bytes of a credential that are redacted: a server, a proxy
	// and client-go cut texts.
	piece = 8
	// maxRead is the length to which a text is cut, in bytes.
	maxRead = 64 << 10
)

// secrets has all pieces of the credentials in use.
type secrets struct {
	pieces map[string]bool
	sizes  []int // of the pieces, each once
}

// secretsOf returns a configuration's token, its password and its proxy's password.
func secretsOf(c *rest.Config) secrets {
	s := secrets{pieces: map[string]bool{}}
	s.add(c.BearerToken)
	s.addUser(c.Username, c.Password)
	if r, err := http.NewRequest(http.MethodGet, c.Host, http.NoBody); err == nil {
		if u, err := proxyOf(c)(r); err == nil && u != nil && u.User != nil {
			password, _ := u.User.Password()
			s.addUser(u.User.Username(), password)
		}
	}
	return s
}

// addUser adds a password in the clear and in the encoding of basic authentication.
func (s *secrets) addUser(name, password string) {
	if password != "" {
		s.add(password)
		s.add(base64.StdEncoding.EncodeToString([]byte(name + ":" + password)))
	}
}

func (s *secrets) add(credential string) {
	size := min(piece, len(credential))
	for n := range len(credential) - size + 1 {
		part := credential[n : n+size]
		if strings.Trim(part, part[:min(1, size)]) == "" { // one repeated byte would match everywhere
			continue
		}
		s.pieces[part] = true
		if !slices.Contains(s.sizes, size) {
			s.sizes = append(s.sizes, size)
		}
	}
}

// redact replaces the parts of credentials in a text. It cuts the text to maxRead bytes.
func (s *secrets) redact(text string) string {
	text = text[:min(len(text), maxRead)]
	var b strings.Builder
	shown, hidden := 0, -1 // the end of the text handled so far, and of the last secret
	for n := range text {
		for _, size := range s.sizes {
			if n+size > len(text) || !s.pieces[text[n:n+size]] {
				continue
			}
			if n > hidden {
				b.WriteString(text[shown:n])
				b.WriteString("(secret)")
			}
			hidden = max(hidden, n+size)
			shown = hidden
		}
	}
	return b.String() + text[shown:]
}

// clean makes an error of client-go safe to show. errors.Is still finds the context's errors in it, and
// apierrors the server's status.
func (c *Client) clean(err error) error {
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		text := cmp.Or(c.text(s.Message), fmt.Sprintf("a response with status %d", s.Code))
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
		return &refusal.Error{Check: CheckServerCertificate, Got: c.text(untrusted.Err.Error())}
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return &refusal.Error{Check: refusal.ErrRetry, Got: text, Err: known}
		}
	}
	return refusal.Retry(errors.New(text))
}

// text makes a server's text safe to show.
func (c *Client) text(s string) string { return refusal.Text(c.used.redact(s)) }

// userInfo matches the user and the password of a URL, even of an invalid one.
var userInfo = regexp.MustCompile(`//[^\n]*@`)

// WithoutPasswords removes the passwords of URLs from the text of an error.
func WithoutPasswords(err error) error {
	if err == nil || !userInfo.MatchString(err.Error()) {
		return err
	}
	return errors.New(userInfo.ReplaceAllString(err.Error(), "//(secret)@"))
}
