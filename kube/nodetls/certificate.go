// Package nodetls is the TLS client of a program that runs as root next to the kubelet, such as a CSI
// driver or an agent. Its client certificate is the node's: the current one in the file of
// kubelet-authenticator, which renews it. A service that checks tokens with package claims accepts a
// pod's token only over such a connection.
//
//	node, err := nodetls.Open("/var/lib/kubelet-authenticator/client.pem", nodetls.Options{Log: log})
//	config := node.TLSConfig()
//	config.RootCAs = roots // of the service
//	client := &http.Client{Transport: node.Transport(&http.Transport{TLSClientConfig: config})}
//
// In a container, mount the folder of the file: each renewal replaces the file, and a mount of the file
// itself would stay with the old one.
package nodetls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// Options are the choices for [Open]. Each zero field is a sensible default.
type Options struct {
	// Log receives each renewal, and each new reason why the file cannot be used; nil discards them. No
	// secrets are logged.
	Log *slog.Logger
	// Now is the clock by which the certificate must not have ended; nil means time.Now.
	Now func() time.Time
}

// Certificate is the node's client certificate with its key, as the file has them now. [Open] makes
// one. It is safe for use by multiple goroutines.
type Certificate struct {
	path string
	opts Options

	mu       sync.Mutex
	pair     *tls.Certificate
	file     fs.FileInfo // the file that pair was read from
	reported string      // the last reason why the file cannot be used
}

// Open reads the file of the node's client certificate, which is authenticator.ClientFile (client.pem)
// in the folder keyDir of kubelet-authenticator's configuration, or in stateDir where keyDir is not set.
//
// The file is one that [certstore.Pair.Marshal] writes, of at most 256 KiB and 10 certificates: mode
// 0600, owned by this process's user, in a folder that only this user and root can write to or replace.
// Its key must be one that a program can use; it has a client certificate of a node (Kubernetes, "Using
// Node Authorization") that has not ended. The check of the error is [certstore.CheckPair] or "file", or
// the error is the file system's; it matches io/fs.ErrNotExist until the node has joined.
func Open(path string, opts Options) (*Certificate, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	c := &Certificate{path: path, opts: opts}
	if _, err := c.current(); err != nil {
		return nil, err
	}
	return c, nil
}

// TLSConfig returns a new configuration of a TLS client, version 1.2 at least, to which the caller may
// add RootCAs, ServerName and NextProtos. Each handshake in which the server asks for a certificate looks
// at the file, and reads it again if it has changed. If the file cannot be used, the previous
// certificate stays in use until its end, and the reason is logged; after that the handshake fails with
// an error as of [Open].
//
// The client keeps no session tickets: a service of package claims refuses a resumed session, which
// proves no key. A connection keeps the certificate that it was opened with, and such a service refuses
// requests on it once that has ended: see [Certificate.Transport].
func (c *Certificate) TLSConfig() *tls.Config {
	return c.configure(&tls.Config{MinVersion: tls.VersionTLS12})
}

// configure sets the fields of a configuration that TLSConfig and Transport promise.
func (c *Certificate) configure(config *tls.Config) *tls.Config {
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	config.ClientSessionCache = nil
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (pair *tls.Certificate, err error) { //goroutine: all of it goes through recovered.Call
		err = recovered.Call(func() (err error) { pair, err = c.current(); return err })
		return pair, err
	}
	return config
}

// current returns the certificate to use now.
func (c *Certificate) current() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, err := os.Lstat(c.path) // before it is read: a file that is replaced in between is read once more
	if err == nil && c.pair != nil && os.SameFile(file, c.file) && file.ModTime().Equal(c.file.ModTime()) && file.Size() == c.file.Size() {
		return c.kept(nil)
	}
	var pair *tls.Certificate
	if err == nil {
		pair, err = read(c.path, c.opts.Now())
	}
	if err != nil {
		return c.kept(fmt.Errorf("nodetls: cannot use %s: %w%s", c.path, err, remedy(err)))
	}
	if c.pair != nil && !c.pair.Leaf.Equal(pair.Leaf) {
		c.opts.Log.Info("the node's client certificate was renewed", "file", c.path, "credential", csr.CredentialID(pair.Leaf), "until", pair.Leaf.NotAfter)
	}
	c.pair, c.file, c.reported = pair, file, ""
	return pair, nil
}

// kept returns the certificate that was read before, unless it has ended. failed says why the file
// cannot be used now; it may be nil.
func (c *Certificate) kept(failed error) (*tls.Certificate, error) {
	if c.pair == nil {
		return nil, failed
	}
	end := c.pair.Leaf.NotAfter
	if !c.opts.Now().Before(end) {
		if failed == nil {
			err := unfit("a certificate that ended at "+end.UTC().Format(time.RFC3339), "one that kubelet-authenticator has renewed")
			failed = fmt.Errorf("nodetls: cannot use %s: %w%s", c.path, err, remedy(err))
		}
		return nil, failed
	}
	if failed != nil && failed.Error() != c.reported {
		c.reported = failed.Error()
		c.opts.Log.Warn("the file of the node's certificate cannot be used; the previous certificate stays in use", "file", c.path, "until", end, "why", failed.Error())
	}
	return c.pair, nil
}

// read reads the file.
func read(path string, now time.Time) (*tls.Certificate, error) {
	dir, name := filepath.Split(path)
	if _, err := os.Stat(dir); err != nil { // certstore.Open would make the folder
		return nil, err
	}
	store, err := certstore.Open(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	p, err := store.ReadPair(name)
	if err != nil {
		return nil, err
	}
	if err := check(p, now); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(p.Chain, p.Key)
	return &pair, err
}

func unfit(got, want string) error {
	return &refusal.Error{Check: certstore.CheckPair, Got: got, Want: want}
}

// check refuses the authenticator's other files, and a certificate that has ended.
func check(p *certstore.Pair, now time.Time) error {
	node, _ := strings.CutPrefix(p.Leaf.Subject.CommonName, csr.NodeUserPrefix)
	name, organization := csr.PurposeClient.SubjectNames(node)
	switch leaf := p.Leaf; {
	case p.Sealed:
		return unfit("a key that only kubelet-authenticator can use, in the TPM", "client.pem, whose key is in the file")
	case name == "" || leaf.Subject.CommonName != name || !slices.Equal(leaf.Subject.Organization, []string{organization}):
		return unfit("a certificate for "+refusal.Quote(leaf.Subject.String()), "a node's, of CN=system:node:<name>,O=system:nodes")
	case !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}):
		return unfit("a certificate that is not for a TLS client", "client.pem; serving.pem is for the kubelet's server")
	case !p.Usable(now):
		return unfit("a certificate that ended at "+leaf.NotAfter.UTC().Format(time.RFC3339), "one that kubelet-authenticator has renewed")
	}
	return nil
}

// remedy says what to do about an error of the file.
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "; name client.pem in keyDir of kubelet-authenticator's configuration (stateDir if keyDir is not set); it is there once the node has joined"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, safefile.CheckFile):
		return "; run this program as the user of kubelet-authenticator, root, and name the folder's own path, which no other user can write to"
	case errors.Is(err, certstore.CheckPair):
		return "; only kubelet-authenticator writes the file; `kubelet-authenticator status` shows why it has no better one"
	}
	return ""
}
