package signer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

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
}

// OpenCA reads a CA. The first file contains the chain, the issuing CA first; the second its
// key: PKCS #8, PKCS #1 or SEC 1, not encrypted. Each is at most 1 MiB long. The error is that
// of reading, or of csr.NewCA, and never contains any part of the key.
func OpenCA(certificateFile, keyFile string, config csr.CAConfig) (*FileCA, error) {
	if certificateFile == "" || keyFile == "" {
		return nil, refusal.Config("certificateFile and keyFile", "", "two paths")
	}
	f := &FileCA{certificateFile: certificateFile, keyFile: keyFile, config: config}
	return f, f.Reload()
}

// Reload reads the files again if they have changed. After an error the CA stays as it was:
// the two files may have been read in the middle of a change.
func (f *FileCA) Reload() error {
	var text [2][]byte
	for i, path := range []string{f.certificateFile, f.keyFile} {
		var err error
		if text[i], err = files.Read(path, maxFileSize); err != nil {
			return fmt.Errorf("signer: %w", err)
		}
	}
	f.mu.RLock()
	same := f.ca != nil && bytes.Equal(text[0], f.read[0]) && bytes.Equal(text[1], f.read[1])
	f.mu.RUnlock()
	if same {
		return nil
	}
	ca, err := parseCA(text[0], text[1], f.config)
	if err != nil {
		return fmt.Errorf("signer: %s: %w", f.certificateFile, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read, f.ca = text, ca
	return nil
}

func parseCA(chain, key []byte, config csr.CAConfig) (*csr.CA, error) {
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, err
	}
	certificates := make([]*x509.Certificate, 0, len(pair.Certificate))
	for _, der := range pair.Certificate {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		certificates = append(certificates, certificate)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, refusal.Config("key", "one that does not sign", "RSA, ECDSA or Ed25519")
	}
	return csr.NewCA(certificates, signer, config)
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
func (f *FileCA) Start(ctx context.Context) error {
	files.Follow(ctx, fileInterval, "the CA", f.Reload)
	return nil
}
