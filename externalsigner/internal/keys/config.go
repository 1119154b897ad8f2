// Package keys holds the keys of the external signer: a key in a file or in a TPM, read again when it
// changes; the keys that no longer sign; the keys of peers; and the state of a rotation.
//
// # A rotation
//
// A new key in the key file is published at once, and signs once it has been published for Publish. Then
// the key before it stays published for Retain. No token is refused that either of them signed.
//
// Until the new key signs, the program keeps the key before it in memory. A program that is restarted
// meanwhile has only the file: it then signs nothing, and answers with [refusal.ErrRetry], until the new
// key has been published for Publish, counted from the restart. The operator avoids that pause with a key
// file of two keys: the new one, and after it the one before. The second is taken out once the new one signs.
//
// # The state
//
// The state file has public keys, times and the IDs of revoked keys, and no private key. It is written
// before a new key is published: a program that was killed anywhere finds the whole state from before
// a change, or the whole one after it. A key that the state knows as the next one may have signed
// before the program ended, and may not have reached any verifier: after a restart it is published for
// Publish again, or for Retain if the key file no longer has it.
//
// A key leaves by its time or because it is revoked, never because a file is missing.
package keys

import (
	"cmp"
	"crypto"
	"encoding"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config is the part of the configuration file about keys. Paths are absolute. Every file that it names,
// and every folder on the way to it, belongs to root or to this process's user, no other user can write to
// it, and it is no symbolic link.
type Config struct {
	// KeyFile is the private key in PEM (PKCS #8, SEC 1, PKCS #1), unencrypted, which other users
	// cannot read: RSA of 2048 bits or more, or ECDSA on P-256, P-384 or P-521. A second key in
	// it is the one before. One of KeyFile, TPM and Signer is required.
	KeyFile string `json:"keyFile"`
	// TPM is a key in a TPM.
	TPM *TPM `json:"tpm"`
	// KeyID is the key's ID, 1 to 1024 bytes. If empty, it is the digest of the public key, as
	// Kubernetes derives it. With it, a new key needs a new KeyID, and so a restart.
	KeyID string `json:"keyID"`
	// StateFile is where the state of the rotation is kept. It is required.
	StateFile string `json:"stateFile"`
	// RetiredFiles are public keys in PEM, one or several blocks each (PKIX, certificates), that no
	// longer sign. They are published for Retain from the time that they were first read.
	RetiredFiles []string `json:"retiredFiles"`
	// VerifyOnlyFiles are public keys in such files that verify tokens without an end, and that
	// appear in no discovery document. A key that is also published appears there until the first
	// start after it is not.
	VerifyOnlyFiles []string `json:"verifyOnlyFiles"`
	// RevokedKeyIDs are the IDs of keys that neither sign nor verify from this start on. The state
	// keeps them: taking an ID out of the configuration does not bring its key back. A key whose digest
	// is revoked is so under every ID. The digest of one that the state knows by another ID is added.
	RevokedKeyIDs []string `json:"revokedKeyIDs"`
	// PeersFolder has the public keys of the cluster's other signers, which verify and do not sign:
	// files NAME.pem as RetiredFiles, and NAME.json with a JWK set. Names that begin with a dot are
	// passed over. A key whose file is gone stays published for Retain. Empty: no peers.
	PeersFolder string `json:"peersFolder"`
	// Publish and Retain are as in jws.RotationConfig. They are required.
	Publish Duration `json:"publish"`
	Retain  Duration `json:"retain"`
	// ReloadInterval is how often the key file and the folder of peers are read again, 100 ms to an
	// hour; 0 means 10 seconds.
	ReloadInterval Duration `json:"reloadInterval"`

	// Issuer is the "iss" of the tokens, to which the state is bound. It is required.
	Issuer string `json:"-"`
	// Signer is a key that a Go function opened, in place of KeyFile and TPM.
	Signer crypto.Signer `json:"-"`
	// Log is where each change is logged. It is required.
	Log *slog.Logger `json:"-"`
	// Now is the clock; nil means time.Now.
	Now func() time.Time `json:"-"`

	step func(name string) // called at each step of a change, for tests
}

// TPM is a key of package tpmkey in a file.
type TPM struct {
	// Device is the path of the TPM's device or of a simulator's socket, as tpm.OpenTPM takes it.
	Device string `json:"device"`
	// KeyFile is the key as tpmkey.File's Marshal writes it. A second key in it is the one before.
	KeyFile string `json:"keyFile"`
	// PasswordFile is the file of the keys' password, of mode 0600, at most 4 KiB; a newline at its end
	// is dropped. Empty: they have none.
	PasswordFile string `json:"passwordFile"`

	open  func() (transport.TPMCloser, error) // for tests; nil: Device is opened
	limit time.Duration                       // for tests; 0: loadLimit
}

// Duration is a time.Duration that is written as "1h30m" in the file.
type Duration time.Duration

var _ encoding.TextUnmarshaler = (*Duration)(nil)

// UnmarshalText reads what time.ParseDuration does.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return refusal.Config("duration", refusal.Quote(string(text)), `a number with a unit, such as "1h30m"`)
	}
	*d = Duration(parsed)
	return nil
}

// The limits of this package. Own keys, keys that only verify and keys of peers together are as many as
// kube-apiserver may be given.
const (
	maxRetired    = 64                                                 // own keys that no longer sign
	maxVerifyOnly = 64                                                 // keys
	maxPeers      = jws.MaxJWKSKeys - (2 + maxRetired) - maxVerifyOnly // keys of peers
	maxPeerFiles  = 64                                                 // files in the folder of peers
	maxEntries    = 512                                                // names in the folder of peers
	maxRevoked    = 256                                                // IDs, of the configuration and the state together
	maxFiles      = 64                                                 // files in each list of the configuration
	maxKeyFile    = 64 << 10                                           // bytes
	maxPublicFile = 256 << 10                                          // bytes
	maxStateFile  = 4 << 20                                            // bytes
	minInterval   = Duration(100 * time.Millisecond)
	maxInterval   = Duration(time.Hour)
)

// prepared returns the configuration with its defaults. The error is refusal.CheckConfig.
func (c Config) prepared() (Config, error) {
	c.ReloadInterval = cmp.Or(c.ReloadInterval, Duration(10*time.Second))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.step == nil {
		c.step = func(string) {}
	}
	switch {
	case c.Issuer == "":
		return c, refusal.Config("issuer", "", "the issuer's URL")
	case c.Log == nil:
		return c, refusal.Config("Log", "", "a logger")
	case c.Publish <= 0 || c.Retain <= 0:
		return c, refusal.Config("publish", time.Duration(c.Publish).String()+", retain "+time.Duration(c.Retain).String(), "both more than 0")
	case c.ReloadInterval < minInterval || c.ReloadInterval > maxInterval:
		return c, refusal.Config("reloadInterval", time.Duration(c.ReloadInterval).String(), "0, or 100ms to 1h")
	case c.StateFile == "":
		return c, refusal.Config("stateFile", "", "a file for the state of the rotation")
	case len(c.RetiredFiles) > maxFiles || len(c.VerifyOnlyFiles) > maxFiles:
		return c, refusal.Config("retiredFiles", strconv.Itoa(len(c.RetiredFiles))+", verifyOnlyFiles "+strconv.Itoa(len(c.VerifyOnlyFiles)), "at most 64 files each")
	case len(c.RevokedKeyIDs) > maxRevoked:
		return c, refusal.Config("revokedKeyIDs", strconv.Itoa(len(c.RevokedKeyIDs)), "at most 256")
	}
	return c, c.checkPaths()
}

// checkPaths refuses relative paths, and another number of keys than one.
func (c Config) checkPaths() error {
	sources := 0
	paths := []string{c.KeyFile, c.StateFile, c.PeersFolder}
	if c.KeyFile != "" {
		sources++
	}
	if c.TPM != nil {
		sources++
		if c.TPM.KeyFile == "" || c.TPM.Device == "" {
			return refusal.Config("tpm", "without device or keyFile", "both")
		}
		paths = append(paths, c.TPM.Device, c.TPM.KeyFile, c.TPM.PasswordFile)
	}
	if c.Signer != nil {
		sources++
	}
	if sources != 1 {
		return refusal.Config("key", "in "+strconv.Itoa(sources)+" places", "one of keyFile, tpm and a key of the program's own")
	}
	paths = append(append(paths, c.RetiredFiles...), c.VerifyOnlyFiles...)
	for _, path := range paths {
		if path != "" && !filepath.IsAbs(path) {
			return refusal.Config("path", refusal.Quote(path), "an absolute path")
		}
	}
	return nil
}
