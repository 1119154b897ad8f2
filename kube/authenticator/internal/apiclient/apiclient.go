// Package apiclient is a node's client of an API server that may be malicious, or behind a broken
// proxy or load balancer. It makes the few calls that a node needs, by client-go's clients, within
// bounds of its own.
//
//   - Only https, to a server whose certificate verifies; no redirects.
//   - Responses are JSON without compression, of a bounded size and a bounded number of values. A
//     watch that exceeds them ends.
//   - A silent connection over HTTP/2 is pinged, and closed if no response comes, as client-go's
//     connections are.
//   - Every connection ends with its Client.
//   - No text that it returns, in an error or in a request's conditions, contains a credential
//     that it uses, and errors are printable and bounded.
//   - Neither this package nor client-go logs the server's data. A program should turn off the
//     standard logger of package log: net/http logs unsolicited HTTP/1 responses there.
package apiclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckGone is the check that fails for a request that was deleted before it was decided.
const CheckGone refusal.Check = "request-gone"

// callLimit bounds one call other than a watch, and the time until a watch begins.
const callLimit = 30 * time.Second

// A Client makes calls with one credential. [Connect] makes it. It is safe for use by multiple
// goroutines.
type Client struct {
	requests certificatesclient.CertificateSigningRequestInterface
	reviews  authenticationclient.AuthenticationV1Interface
	http     *http.Client
	key      any // of the certificate; closed with the client
	cas      []*x509.Certificate
	used     secrets

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
	ca     *x509.Certificate
}

// Connect returns a client for the server and the credential of c, which [Load] checks. certificate,
// if not nil, replaces the client certificate of c, for a key that has no PEM form; if the key is an
// [io.Closer], Close closes it, as does Connect if it fails. Nothing is sent.
func Connect(c *rest.Config, certificate *tls.Certificate) (_ *Client, err error) {
	made := new(Client)
	if certificate != nil {
		made.key = certificate.PrivateKey
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, made.Close())
		}
	}()
	if c, err = Load(c); err != nil {
		return nil, err
	}
	made.used = secretsOf(c)
	if made.cas, err = CAs(c); err != nil {
		return nil, err
	}
	if err := made.build(c, certificate); err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "an invalid credential or CA", Err: errors.New(made.text(err.Error()))}
	}
	return made, nil
}

func (c *Client) build(config *rest.Config, certificate *tls.Certificate) (err error) {
	if c.http, err = c.transport(config, certificate); err != nil {
		return err
	}
	certificates, err := certificatesclient.NewForConfigAndClient(config, c.http)
	if err != nil {
		return err
	}
	c.requests = certificates.CertificateSigningRequests()
	c.reviews, err = authenticationclient.NewForConfigAndClient(config, c.http)
	return err
}

// quiet returns a context in which client-go logs nothing.
func quiet(ctx context.Context) context.Context { return logr.NewContext(ctx, logr.Discard()) }

// call makes one call.
func call[T any](ctx context.Context, c *Client, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(quiet(ctx), callLimit)
	defer cancel()
	got, err := do(ctx)
	return got, c.clean(err)
}

// maxGenerated bounds the suffix of a generated name, in bytes. Kubernetes appends five.
const maxGenerated = piece - 1

// Create files a request with a generated name. It refuses a response with a name that was not
// generated from o.GenerateName, which Kubernetes may shorten.
func (c *Client) Create(ctx context.Context, o *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	got, err := call(ctx, c, func(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
		return c.requests.Create(ctx, o, metav1.CreateOptions{})
	})
	if err != nil {
		return nil, err
	}
	same := 0
	for same < min(len(got.Name), len(o.GenerateName)) && got.Name[same] == o.GenerateName[same] {
		same++
	}
	if len(validation.IsDNS1123Subdomain(got.Name)) != 0 || len(got.Name)-same > maxGenerated {
		return nil, &refusal.Error{Check: CheckAnswer, Got: "a request with the name " + refusal.Quote(c.used.redact(got.Name)), Want: o.GenerateName + " and a few characters"}
	}
	return c.shown(got), nil
}

// How long to wait before reopening a watch that has ended: at first, and at most.
const (
	firstWatchPause = 100 * time.Millisecond
	lastWatchPause  = 2 * time.Second
)

// Await watches a request until it is done, from o on. Every watch ends after some minutes: it is
// then reopened, and the request read once for changes in between. Await fails if ctx ends, or on an
// error that will not go away with the same credential: the check is [CheckGone] if the request was
// deleted.
func (c *Client) Await(ctx context.Context, o *certificatesv1.CertificateSigningRequest, done func(*certificatesv1.CertificateSigningRequest) bool) (*certificatesv1.CertificateSigningRequest, error) {
	pause := firstWatchPause
	for {
		now, err := c.follow(ctx, o, done)
		switch {
		case err == nil && done(now):
			return now, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case final(err):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastWatchPause)
		got, err := c.get(ctx, o)
		switch {
		case final(err), errors.Is(err, CheckAnswer): // the next response would be the same
			return nil, err
		case err != nil: // the API server is unavailable: try again
		case done(got):
			return got, nil
		default:
			o = got
		}
	}
}

// final reports whether the credential is rejected or the request deleted.
func final(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || errors.Is(err, CheckGone)
}

// get reads a request. The check of the error is [CheckGone] if it was deleted, or replaced by another
// one of its name.
func (c *Client) get(ctx context.Context, o *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	got, err := call(ctx, c, func(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
		return c.requests.Get(ctx, o.Name, metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && (got.UID != o.UID || got.Name != o.Name):
		return nil, c.gone(o)
	case err != nil:
		return nil, err
	}
	return c.shown(got), nil
}

// follow watches a request until it is done or the watch ends: after the server's timeout, after an
// error, or at the bounds of a response. It returns the last version that it received. The check of the
// error is [CheckGone] if the request is deleted.
func (c *Client) follow(ctx context.Context, o *certificatesv1.CertificateSigningRequest, done func(*certificatesv1.CertificateSigningRequest) bool) (*certificatesv1.CertificateSigningRequest, error) {
	w, err := c.requests.Watch(quiet(ctx), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", o.Name).String(), ResourceVersion: o.ResourceVersion})
	if err != nil {
		return o, c.clean(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		got, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
		switch {
		case event.Type == watch.Error:
			return o, c.clean(apierrors.FromObject(event.Object))
		case !ok || got.Name != o.Name:
		case event.Type == watch.Deleted || got.UID != o.UID:
			return o, c.gone(o)
		default:
			if o = c.shown(got); done(o) {
				return o, nil
			}
		}
	}
	return o, nil
}

// AwaitChange waits until the conditions of a decided request are no longer those of o, or it is deleted. It is one
// watch: if that ends, AwaitChange fails.
func (c *Client) AwaitChange(ctx context.Context, o *certificatesv1.CertificateSigningRequest) error {
	changed := func(now *certificatesv1.CertificateSigningRequest) bool {
		return !equality.Semantic.DeepEqual(now.Status.Conditions, o.Status.Conditions)
	}
	now, err := c.follow(ctx, o, changed)
	if errors.Is(err, CheckGone) || err == nil && changed(now) {
		return nil
	}
	return cmp.Or(err, ctx.Err(), errWatchEnded)
}

var errWatchEnded = errors.New("the watch has ended")

func (c *Client) gone(o *certificatesv1.CertificateSigningRequest) error {
	return &refusal.Error{Check: CheckGone, Got: "request " + o.Name + " deleted", Want: "a decision"}
}

// shown removes credentials from the conditions of a request, which are logged.
func (c *Client) shown(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	for i := range o.Status.Conditions {
		condition := &o.Status.Conditions[i]
		condition.Reason, condition.Message = c.used.redact(condition.Reason), c.used.redact(condition.Message)
	}
	return o
}

// WhoAmI returns the user as whom the API server authenticates the credential (SelfSubjectReview).
func (c *Client) WhoAmI(ctx context.Context) (*authenticationv1.UserInfo, error) {
	got, err := call(ctx, c, func(ctx context.Context) (*authenticationv1.SelfSubjectReview, error) {
		return c.reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	})
	if err != nil {
		return nil, err
	}
	who := got.Status.UserInfo
	if who.Username == "" {
		return nil, &refusal.Error{Check: CheckAnswer, Got: "a SelfSubjectReview without a username", Want: "the user of the credential"}
	}
	who.Username = c.used.redact(who.Username)
	return &who, nil
}

// MayFile returns whether the API server lets the credential's user file certificate requests
// (SelfSubjectAccessReview).
func (c *Client) MayFile(ctx context.Context) (bool, error) {
	got, err := call(ctx, c, func(ctx context.Context) (*authorizationv1.SelfSubjectAccessReview, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}}}
		got := new(authorizationv1.SelfSubjectAccessReview)
		err := c.reviews.RESTClient().Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(review).Do(ctx).Into(got)
		return got, err
	})
	return err == nil && got.Status.Allowed && !got.Status.Denied, err
}

// CA returns the CA that verified the server's certificate at the first call. If there was no call yet,
// it makes one.
//
// With a bundle of several CAs, such as during the rotation of a cluster's CA, the server thus selects
// one, but only among those that issued its certificate: the holder of an old CA's key learns nothing
// that is bound to the new CA. Of several chains the shortest is used, and of equally short ones the
// chain whose CA is first in the bundle; so the CA that issued the server's certificate is preferred to
// that CA's issuer, whichever intermediates the server sends. Every certificate of the bundle is a CA
// here, even an intermediate.
//
// A CA that signs for other clusters too, such as a public one, does not identify the cluster.
func (c *Client) CA(ctx context.Context) (*x509.Certificate, error) {
	if ca := c.verifiedBy(); ca != nil {
		return ca, nil
	}
	_, err := call(ctx, c, func(ctx context.Context) ([]byte, error) {
		return c.reviews.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	})
	if ca := c.verifiedBy(); ca != nil { // also if the call failed
		return ca, nil
	}
	return nil, err
}

// Close closes every connection, even during a call, and closes the key.
func (c *Client) Close() error {
	if c.http != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport) // in an orderly way
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close() // the server may have closed it
	}
	c.conns, c.closed = nil, true
	if key, ok := c.key.(io.Closer); ok {
		c.key = nil
		return key.Close()
	}
	return nil
}
