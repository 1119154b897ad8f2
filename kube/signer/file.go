package signer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxFileSize is the maximum length, in bytes, of a certificate or key file.
const maxFileSize = 1 << 20

// fileInterval is how often a [FileCA] looks at its files.
const fileInterval = 10 * time.Second

// FileCA is a CA whose chain and key are in two PEM files, and which follows their changes:
// for a Secret that is mounted. It is a manager.Runnable.
type FileCA struct {
	certificateFile, keyFile string
	config                   csr.CAConfig
	mu                       sync.RWMutex
	read                     [2][]byte
	ca                       *csr.CA
	valid                    validity // of ca
}

// validity is when all certificates of a chain are valid.
type validity struct{ from, to time.Time }

func validityOf(chain []*x509.Certificate) validity {
	v := validity{chain[0].NotBefore, chain[0].NotAfter}
	for _, c := range chain[1:] {
		if c.NotBefore.After(v.from) {
			v.from = c.NotBefore
		}
		if c.NotAfter.Before(v.to) {
			v.to = c.NotAfter
		}
	}
	return v
}

// check returns an error if the chain is not valid now.
func (v validity) check(now time.Time) error {
	if now.Before(v.from) || now.After(v.to) {
		return fmt.Errorf("the CA is valid from %s to %s, and now is %s", v.from.UTC().Format(time.RFC3339), v.to.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// OpenCA reads a CA. The first file contains the chain, the issuing CA first, and nothing else
// (tpmcert.ParseCertificatesPEM); the second its key: PKCS #8, PKCS #1 or SEC 1, not encrypted.
// Each is at most 1 MiB long. The error is that of reading, or of csr.NewCA, and never contains
// any part of the key. A CA that is not valid now is accepted; see [FileCA.Check].
func OpenCA(certificateFile, keyFile string, config csr.CAConfig) (*FileCA, error) {
	if certificateFile == "" || keyFile == "" {
		return nil, refusal.Config("certificateFile and keyFile", "", "two paths")
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	f := &FileCA{certificateFile: certificateFile, keyFile: keyFile, config: config}
	return f, f.Reload()
}

var errNotOpened = errors.New("signer: a CA that OpenCA did not open")

func (f *FileCA) opened() bool { return f != nil && f.config.Now != nil }

// Reload reads the files again if they have changed. After an error the CA stays as it was:
// the two files may have been read in the middle of a change. A CA that is valid now also stays
// as long as the one in the files is not.
func (f *FileCA) Reload() error {
	if !f.opened() {
		return errNotOpened
	}
	var text [2][]byte
	for i, path := range []string{f.certificateFile, f.keyFile} {
		var err error
		if text[i], err = files.Read(path, maxFileSize); err != nil {
			return fmt.Errorf("signer: %w", err)
		}
	}
	f.mu.RLock()
	known, read := f.ca != nil, f.read
	f.mu.RUnlock()
	if known && bytes.Equal(text[0], read[0]) && bytes.Equal(text[1], read[1]) {
		return nil
	}
	ca, valid, err := f.parse(text[0], text[1])
	if err != nil {
		return fmt.Errorf("signer: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.config.Now()
	if err := valid.check(now); err != nil && f.ca != nil && f.valid.check(now) == nil {
		return fmt.Errorf("signer: %s: %w", f.certificateFile, err)
	}
	f.read, f.ca, f.valid = text, ca, valid
	return nil
}

// parse makes a CA of the texts. The error names the file that is wrong.
func (f *FileCA) parse(chain, key []byte) (*csr.CA, validity, error) {
	certificates, err := tpmcert.ParseCertificatesPEM(chain)
	if err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", f.certificateFile, err)
	}
	if bytes.Contains(key, []byte("ENCRYPTED")) { // in PEM of RFC 1421 and of RFC 7468
		return nil, validity{}, fmt.Errorf("%s: %w", f.keyFile, refusal.Config("key", "an encrypted one", "one without a password, in a file that only the signer reads"))
	}
	pair, err := tls.X509KeyPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificates[0].Raw}), key)
	if err != nil {
		return nil, validity{}, fmt.Errorf("%s, for the first certificate of %s: %w", f.keyFile, f.certificateFile, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, validity{}, refusal.Config("key", "one that does not sign", "RSA, ECDSA or Ed25519")
	}
	ca, err := csr.NewCA(certificates, signer, f.config)
	if err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", f.certificateFile, err)
	}
	return ca, validityOf(certificates), nil
}

// NotAfter returns when the first certificate of the CA's chain ends.
func (f *FileCA) NotAfter() time.Time {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.valid.to
}

// Check is a readiness check (healthz.Checker). It returns an error while the CA is not valid.
func (f *FileCA) Check(*http.Request) error {
	if !f.opened() {
		return errNotOpened
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if err := f.valid.check(f.config.Now()); err != nil {
		return fmt.Errorf("signer: %w", err)
	}
	return nil
}

// CA returns the CA that was read last, for [Config].
func (f *FileCA) CA() *csr.CA {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.ca
}

// NeedLeaderElection says that every replica follows the files.
func (*FileCA) NeedLeaderElection() bool { return false }

// Start follows the files until ctx ends.
func (f *FileCA) Start(ctx context.Context) error { //goroutine: reads the CA's files alone
	if !f.opened() {
		return errNotOpened
	}
	files.Follow(ctx, fileInterval, "the CA", f.Reload)
	return nil
}
