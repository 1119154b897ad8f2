package azure

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// defaultURL is the address of every machine's Instance Metadata Service.
const defaultURL = "http://169.254.169.254"

// The API versions of the service that are requested.
const (
	instanceVersion = "2021-02-01"
	attestedVersion = "2025-04-07"
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
	client, err := metadata.New(opts.URL, defaultURL, opts.Timeout)
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

// ask asks the service for a path with a query.
func (s *Source) ask(ctx context.Context, path string, maxSize int) ([]byte, error) {
	if s == nil {
		s = &Source{}
	}
	return s.client.Do(ctx, metadata.Request{Path: path, Header: map[string]string{"Metadata": "true"}, MaxSize: maxSize})
}

// Machine asks which machine this is. It does not request a document: one without a nonce
// would be what the service returns for the next hours. The error is an [*attest.Error] with
// the check "metadata-server", or [attest.CheckIdentity] if the answer names no machine.
func (s *Source) Machine(ctx context.Context) (attest.Identity, error) {
	body, err := s.ask(ctx, "/metadata/instance/compute?api-version="+instanceVersion+"&format=json", maxInstanceSize)
	if err != nil {
		return "", err
	}
	var vm, subscription string
	err = strictjson.Members{"vmId": strictjson.Into(&vm), "subscriptionId": strictjson.Into(&subscription)}.Parse(body)
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
		return nil, refuse(checkNonce, strconv.Itoa(len(value))+" bytes", "16 or more")
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
	body, err := s.ask(ctx, "/metadata/attested/document?api-version="+attestedVersion+"&nonce="+nonce, maxReplySize)
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
	err := strictjson.Members{"encoding": strictjson.Into(&encoding), "signature": strictjson.Into(&signature)}.Parse(body)
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
	return &refusal.Error{Check: metadata.CheckMetadata, Got: got, Want: "what the service is documented to give", Err: err}
}
