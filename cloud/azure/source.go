package azure

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// apiVersion is the version of the service's interface that is asked for. A cloud, or a region,
// may be years behind another: this one is everywhere, and has all that is read, as every version
// since fields has.
const (
	apiVersion = "2019-06-01"
	fields     = "2019-04-30"
)

const (
	maxInstanceSize = 512 << 10 // including user data
	maxReplySize    = 2 * maxDocumentSize
	firstDelay      = time.Second
	lastDelay       = 15 * time.Second
)

// Checks on the node's side.
const (
	// checkCached: the service returned a document over a nonce other than the one requested.
	// It keeps a document for up to six hours and returns it to anyone who asks meanwhile:
	// another program on the machine has asked. errors.Is also finds [refusal.ErrRetry]: the
	// join succeeds once the service makes a new document.
	checkCached refusal.Check = "azure-document-cached"
)

// SourceOptions say how a [Source] asks. The zero value works.
type SourceOptions struct {
	// URL is that of the service, "http://<host>" or with a port; "" means
	// http://169.254.169.254.
	URL string
	// Timeout bounds one question, including all its tries; zero means 75 seconds, since a
	// service that is being updated is away for up to 70.
	Timeout time.Duration
	// Sleep waits before a document is asked for again because the last one was
	// "azure-document-cached": one second at first, then twice as long each time, up to 15. An
	// error ends the tries. Nil waits in real time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Source asks the Instance Metadata Service of the machine that it runs on, for
// [document.NewProver]. It bypasses every proxy, and is safe for concurrent use.
type Source struct {
	client  *metadata.Client
	timeout time.Duration
	sleep   func(context.Context, time.Duration) error
}

// NewSource makes a source. The error matches [refusal.CheckConfig].
func NewSource(opts SourceOptions) (*Source, error) {
	client, err := metadata.New(opts.URL, opts.Timeout)
	if err != nil {
		return nil, err
	}
	s := &Source{client: client, timeout: cmp.Or(opts.Timeout, metadata.DefaultTimeout), sleep: opts.Sleep}
	if s.sleep == nil {
		s.sleep = metadata.Sleep
	}
	return s, nil
}

// NewProver is the node's side of this kind of evidence. The error matches
// [refusal.CheckConfig].
func NewProver(opts SourceOptions) (*document.Prover, error) {
	s, err := NewSource(opts)
	if err != nil {
		return nil, err
	}
	return document.NewProver(Provider, formatVersion, s)
}

// ask sends a GET for a path and query to the service. A service that does not have the
// version any more lists the versions that it has.
func (s *Source) ask(ctx context.Context, path, query string, maxSize int) ([]byte, error) {
	if s == nil {
		s = &Source{}
	}
	for version := apiVersion; ; {
		body, err := s.client.Do(ctx, metadata.Request{Path: path + "?api-version=" + version + query, MaxSize: maxSize,
			Header: map[string]string{"Metadata": "true"}, Again: []int{http.StatusNotFound, http.StatusGone}, Wants: map[int]string{
				http.StatusNotFound: "the metadata service of a virtual machine: containers and functions of Azure do not have it"}})
		status, said := metadata.StatusOf(err)
		offered := versionsIn(said)
		if status != http.StatusBadRequest || len(offered) == 0 {
			return body, err
		}
		n := slices.IndexFunc(offered, func(v string) bool { return v >= fields && v != apiVersion })
		if n < 0 || version != apiVersion {
			return nil, &refusal.Error{Check: metadata.CheckMetadata, Got: "a service that offers the versions " + refusal.Quotes(offered),
				Want: apiVersion + ", or another since " + fields}
		}
		version = offered[n]
	}
}

// versionsIn are the versions that an answer offers where it refuses another one, in order.
func versionsIn(said []byte) (offered []string) {
	err := strictjson.Fields{"newest-versions": func(r *strictjson.Reader) (err error) {
		offered, err = r.Strings()
		return err
	}}.Parse(said)
	if err != nil || slices.ContainsFunc(offered, func(v string) bool { _, err := time.Parse(time.DateOnly, v); return err != nil }) {
		return nil
	}
	slices.Sort(offered)
	return offered
}

// Machine asks which machine this is. It does not request a document: one without a nonce
// would stay in the service's cache for hours. The error is an [*attest.Error] with
// the check "metadata-server", or [attest.CheckIdentity] if the answer names no machine.
func (s *Source) Machine(ctx context.Context) (attest.Identity, error) {
	body, err := s.ask(ctx, "/metadata/instance/compute", "&format=json", maxInstanceSize)
	if err != nil {
		return "", err
	}
	var vm, subscription string
	err = strictjson.Fields{"vmId": strictjson.Into(&vm), "subscriptionId": strictjson.Into(&subscription)}.Parse(body)
	if err != nil {
		return "", unusable("a bad answer about the machine", err)
	}
	return Identity(subscription, vm)
}

// Document asks for a document over the first 16 bytes of a value, and checks the nonce of the
// result: a document over another nonce is asked for again, until the timeout. The error is an
// [*attest.Error] with the check "metadata-server" or "azure-document-cached".
func (s *Source) Document(ctx context.Context, value []byte) ([]byte, error) {
	if len(value) < valueSize {
		return nil, checkNonce.Refuse(strconv.Itoa(len(value))+" bytes", "16 or more")
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var waited time.Duration
	for delay := firstDelay; ; delay = min(2*delay, lastDelay) {
		document, err := s.once(ctx, nonceOf(value))
		if !errors.Is(err, checkCached) {
			return document, err
		}
		if waited+delay > s.timeout || s.sleep(ctx, delay) != nil {
			return nil, err
		}
		waited += delay
	}
}

// once asks for a document over a nonce.
func (s *Source) once(ctx context.Context, nonce string) ([]byte, error) {
	body, err := s.ask(ctx, "/metadata/attested/document", "&nonce="+nonce, maxReplySize)
	if err != nil {
		return nil, err
	}
	document, err := readReply(body)
	if err != nil {
		return nil, err
	}
	d, err := parseInsecure(document)
	if err != nil {
		return nil, unusable("a bad document", err)
	}
	if d.Nonce != nonce {
		return nil, &refusal.Error{Check: checkCached, Got: "a document over nonce " + refusal.Quote(d.Nonce), Want: "one over the nonce that was given", Err: refusal.ErrRetry}
	}
	return document, nil
}

// readReply reads {"encoding":"pkcs7","signature":"<base64>"}.
func readReply(body []byte) ([]byte, error) {
	var encoding, signature string
	err := strictjson.Fields{"encoding": strictjson.Into(&encoding), "signature": strictjson.Into(&signature)}.Parse(body)
	if err != nil {
		return nil, unusable("a bad answer", err)
	}
	if encoding != "pkcs7" {
		return nil, unusable("encoding "+refusal.Quote(encoding), nil)
	}
	document, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(signature))
	if err != nil {
		return nil, unusable("a bad signature", err)
	}
	return document, nil
}

func unusable(got string, err error) error {
	return &refusal.Error{Check: metadata.CheckMetadata, Got: got, Want: "an answer as the service's documentation has it", Err: err}
}
