// Package keys holds the keys of the external signer: files and keys of a TPM, read again when they
// change, the keys of peers, and the state of a rotation.
package keys

import (
	"context"
	"crypto"
	"encoding"
	"log/slog"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config is the part of the configuration file about keys. Paths are absolute.
type Config struct {
	// KeyFile is the private key in PEM (PKCS #8, SEC 1, PKCS #1). One of KeyFile, TPM and Signer is
	// required.
	KeyFile string `json:"keyFile"`
	// TPM is a key in a TPM.
	TPM *TPM `json:"tpm"`
	// StateFile is where the state of the rotation is kept.
	StateFile string `json:"stateFile"`
	// RetiredFiles and VerifyOnlyFiles are public keys in PEM, one or several blocks each.
	RetiredFiles    []string `json:"retiredFiles"`
	VerifyOnlyFiles []string `json:"verifyOnlyFiles"`
	// RevokedKeyIDs are the IDs of keys that are never published, whatever the state says.
	RevokedKeyIDs []string `json:"revokedKeyIDs"`
	// PeersFolder has the public keys of other signers of the cluster.
	PeersFolder string `json:"peersFolder"`
	// Publish and Retain are as in jws.RotationConfig.
	Publish Duration `json:"publish"`
	Retain  Duration `json:"retain"`
	// ReloadInterval is how often files are read again.
	ReloadInterval Duration `json:"reloadInterval"`

	// Signer is a key that a Go function opened, in the place of KeyFile and TPM.
	Signer crypto.Signer `json:"-"`
	// Log is where each change is logged. It is required.
	Log *slog.Logger `json:"-"`
	// Now is the clock; nil means time.Now.
	Now func() time.Time `json:"-"`
}

// TPM is a key of package tpmkey in a file.
type TPM struct {
	// Device is the path of the TPM's device or of a simulator's socket.
	Device string `json:"device"`
	// KeyFile is the key, as tpmkey.Key's MarshalBinary writes it.
	KeyFile string `json:"keyFile"`
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

// Keys are the signer's keys: a jws.Signer, and a jws.KeySet with Overlap. It is safe for concurrent use.
type Keys struct{ *jws.RotatingSigner }

// Status is for metrics.
type Status struct {
	// Published are the signer's own published keys, as jws.RotatingSigner.Published returns them.
	Published []jws.PublishedKey
	// SigningSince is when the first of them began to sign.
	SigningSince time.Time
	// Peers is how many keys of peers are published.
	Peers int
	// Failures is how often files could not be read again, since the start.
	Failures uint64
}

// Open reads the keys and the state.
func Open(Config) (*Keys, error) {
	return nil, refusal.Config("keys", "", "a build that has them")
}

// VerifyOnly are the keys that only verify, read at the start.
func (k *Keys) VerifyOnly() []*jws.Key { return nil }

// Status is the state now.
func (k *Keys) Status() Status { return Status{} }

// Run reads the files again, at the interval of the configuration, until ctx ends.
func (k *Keys) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
