package keys

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// source is where the private keys are: a file, a TPM, or a Go function.
type source struct {
	config Config
	own    secret.Value[crypto.Signer] // that of a Go function
	tpm    transport.TPMCloser         // nil until it is opened

	sum  [sha256.Size]byte // of the file as it was last read
	keys []candidate       // its keys
}

// candidate is one key of a source.
type candidate struct {
	public  crypto.PublicKey
	private secret.Value[crypto.Signer] // zero for a key that is still to be loaded into the TPM
	file    *tpmkey.File
}

func newSource(config Config) source {
	s := source{config: config}
	if config.Signer != nil {
		s.own, s.config.Signer = secret.New(config.Signer), nil
	}
	return s
}

// path names the source in errors and logs.
func (s *source) path() string {
	switch {
	case s.config.TPM != nil:
		return s.config.TPM.KeyFile
	case !s.own.IsZero():
		return "the key of the program's own"
	}
	return s.config.KeyFile
}

// read reads the keys, the one that is to sign first. It opens no TPM.
func (s *source) read() ([]candidate, error) {
	if !s.own.IsZero() {
		return []candidate{{public: s.own.Reveal().Public(), private: s.own}}, nil
	}
	text, err := readPrivate(s.path(), maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(), err)
	}
	sum := sha256.Sum256(text)
	if s.keys != nil && sum == s.sum {
		return s.keys, nil
	}
	parse := parseFile
	if s.config.TPM != nil {
		parse = parseTPMFile
	}
	keys, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(), err)
	}
	s.sum, s.keys = sum, keys
	return keys, nil
}

func parseFile(text []byte) ([]candidate, error) {
	keys, err := parsePrivate(text)
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, key := range keys {
		all = append(all, candidate{public: key.Public(), private: secret.New(key)})
	}
	return all, nil
}

// parseTPMFile reads the one or two keys of a file of TPM keys. Their public parts need no TPM.
func parseTPMFile(text []byte) ([]candidate, error) {
	blocks, err := blocks(text, maxOwn, checkKeyFile)
	if err != nil {
		return nil, err
	}
	if len(blocks) == 0 {
		return nil, checkKeyFile.Refuse("no key", "a key of a TPM, TSS2 PRIVATE KEY")
	}
	var all []candidate
	for _, block := range blocks {
		file, err := tpmkey.ParseFile(pem.EncodeToMemory(block))
		if err != nil {
			return nil, err
		}
		area, err := statement.ParsePublic(file.Public)
		if err != nil {
			return nil, err
		}
		public, err := area.Key()
		if err != nil {
			return nil, err
		}
		all = append(all, candidate{public: public, file: file})
	}
	return all, nil
}

// load returns the private key of a candidate.
func (s *source) load(ctx context.Context, c *candidate) (crypto.Signer, error) {
	if !c.private.IsZero() {
		return c.private.Reveal(), nil
	}
	options := tpmkey.LoadOptions{}
	if path := s.config.TPM.PasswordFile; path != "" {
		text, err := readPrivate(path, 4<<10)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		options.Password = secret.New(bytes.TrimSuffix(text, []byte("\n")))
	}
	if s.tpm == nil {
		open := s.config.TPM.open
		if open == nil {
			open = func() (transport.TPMCloser, error) { return tpm.OpenTPM(s.config.TPM.Device) }
		}
		device, err := open()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.config.TPM.Device, err)
		}
		s.tpm = shared{tpmkey.Share(device), device}
	}
	key, err := s.loadKey(ctx, c.file, options)
	if err != nil {
		return nil, fmt.Errorf("%s in the TPM %s: %w", s.path(), s.config.TPM.Device, err)
	}
	return key, nil
}

// loadLimit is how long a TPM may take to load a key. Until then no key is published at a start, and kube-apiserver,
// which starts meanwhile, waits for a minute.
const loadLimit = 20 * time.Second

// loadKey loads a key into the TPM. A command that the TPM does not answer cannot be ended: then the error is
// refusal.ErrRetry, and the next call waits for its turn, as long.
func (s *source) loadKey(ctx context.Context, file *tpmkey.File, options tpmkey.LoadOptions) (*tpmkey.Key, error) {
	limit := cmp.Or(s.config.TPM.limit, loadLimit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	device := s.tpm.(shared).TPM
	var key *tpmkey.Key
	loaded := recovered.Go(func() (err error) {
		if key, err = tpmkey.Load(ctx, device, file, options); err == nil && ctx.Err() != nil {
			err = errors.Join(ctx.Err(), key.Close()) // the caller waits no more
		}
		return err
	})
	select {
	case err := <-loaded:
		return key, err
	case <-ctx.Done():
		return nil, refusal.Retry(fmt.Errorf("no answer within %s: %w", limit, ctx.Err()))
	}
}

// shared is a TPM that all keys share.
type shared struct {
	transport.TPM
	device transport.TPMCloser
}

func (s shared) Close() error { return s.device.Close() }

func (s *source) close() error {
	if s.tpm == nil {
		return nil
	}
	return s.tpm.Close()
}

// signer is a jws.KeySigner whose private key may be missing: the public key is published all the same.
type signer struct {
	key    *jws.Key
	at     atomic.Pointer[jws.CryptoSigner]
	reason atomic.Pointer[string] // why it has no private key
}

// Key returns the public key.
func (s *signer) Key() *jws.Key { return s.key }

// Sign signs. Without a private key the error is refusal.ErrRetry.
func (s *signer) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	private := s.at.Load()
	if private == nil {
		return nil, refusal.Retry(errors.New("no signature with the key " + refusal.Quote(s.key.KeyID()) + ": " + s.why()))
	}
	return private.Sign(ctx, payload)
}

// use gives the signer its private key.
func (s *signer) use(private crypto.Signer) error {
	if !samePublic(private.Public(), s.key.Public()) {
		return checkKeyFile.Refuse("a private key with another public key", "that of "+s.key.KeyID())
	}
	with, err := jws.NewSigner(private, jws.SignerOptions{KeyID: s.key.KeyID(), Type: jws.TypeJWT})
	if err == nil {
		s.at.Store(with)
	}
	return err
}

// why says why the private key is missing.
func (s *signer) why() string {
	if reason := s.reason.Load(); reason != nil {
		return *reason
	}
	return "its private key is missing"
}

func (s *signer) miss(why string) { s.reason.Store(&why) }

// seconds formats a time for people.
func seconds(at time.Time) string { return at.UTC().Format(time.RFC3339) }
