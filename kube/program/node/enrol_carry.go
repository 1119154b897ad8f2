package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// maxReply bounds a reply, in bytes.
	maxReply = 2 << 20
	// lookAgain is the interval between two reads of the reply.
	lookAgain = 200 * time.Millisecond
)

// carryIn writes a request into a folder, and waits for a complete reply.
func (e *enrolment) carryIn(ctx context.Context, dir string, spec *csr.Spec) (*csr.Request, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	name := "-hello.json"
	if spec.SignerName == csr.SignerClientTPM {
		name = "-answer.json"
	}
	path := filepath.Join(dir, e.nodeName+name)
	if err := os.Remove(path + ".reply"); err != nil && !errors.Is(err, os.ErrNotExist) { // of an earlier run
		return nil, err
	}
	if err := safefile.Replace(path, safefile.Content(text)); err != nil {
		return nil, err
	}
	fmt.Fprintf(e.stdout, "waiting for %s.reply, which the CA makes from %s\n", path, path)
	var request *csr.Request
	err = wait.PollUntilContextCancel(ctx, lookAgain, true, func(context.Context) (bool, error) { //goroutine: runs in this one
		reply, err := files.ReadForeign(path+".reply", maxReply)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		request = csr.Filed(spec, csr.User{}, time.Now())
		return err == nil && json.Unmarshal(reply, &request.Status) == nil, err
	})
	return request, err
}

// checkServer is the check that fails if the CA's server does not answer with a reply.
const checkServer refusal.Check = "ca-server"

const (
	// serverPatience bounds a request to the server.
	serverPatience = time.Minute
	// maxHeaders bounds the headers of a reply, in bytes.
	maxHeaders = 64 << 10
)

// overHTTPS carries requests to a server whose certificate is of one of the CAs in a file.
func overHTTPS(to, caFile string) (join.File, error) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, refusal.Config("--url", refusal.Quote(to), "https://HOST:PORT/enrol")
	}
	cas, err := readCertificates(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca)
	}
	client := &http.Client{Timeout: serverPatience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders}}
	return func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) { return post(ctx, client, to, spec) }, nil
}

// post sends a request, and returns it with the reply.
func post(ctx context.Context, client *http.Client, to string, spec *csr.Spec) (*csr.Request, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	reply, err := io.ReadAll(io.LimitReader(got.Body, maxReply+1))
	if err = errors.Join(err, got.Body.Close()); err != nil {
		return nil, err
	}
	request := csr.Filed(spec, csr.User{}, time.Now())
	switch {
	case got.StatusCode == http.StatusTooManyRequests || got.StatusCode == http.StatusServiceUnavailable:
		return nil, refusal.Retry(&refusal.Error{Check: checkServer, Got: http.StatusText(got.StatusCode), Want: "a reply: try again"})
	case got.StatusCode != http.StatusOK:
		return nil, &refusal.Error{Check: checkServer, Got: refusal.Text(got.Status), Want: "200 OK"}
	case len(reply) > maxReply || json.Unmarshal(reply, &request.Status) != nil:
		return nil, &refusal.Error{Check: checkServer, Got: "an answer that is not a certificate request's status", Want: fmt.Sprintf("one in JSON, of at most %d bytes", maxReply)}
	}
	return request, nil
}
