package authenticator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/tpmcapability"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// TPM is the [Evidence] of a TPM. It must not be changed once it is in use.
type TPM struct {
	// Path is the TPM's device or socket, in the form that tpm.OpenTPM takes: /dev/tpmrm0 on
	// Linux. Behind a socket there is no kernel to clean up after a program that was killed:
	// if such a TPM has no room left, everything that is loaded in it is flushed.
	Path string
	// Device, instead of Path, opens the TPM: for Windows, and for tests.
	Device func() (transport.TPMCloser, error)
	// AK says where the attestation key comes from.
	AK tpm.AKSource
	// AKPasswordFile, if set, is the file of the AK's password, which each use of the TPM reads
	// anew, in place of Options.AKPassword: of mode 0600, at most 4 KiB; a newline at its end
	// does not count. A password that was wrong is not tried again until the file is another
	// one, or Rotate is called.
	AKPasswordFile string
	// Options are the prover's options. With EK set, the node takes the road of the EK.
	Options tpm.ProverOptions
	// PersistentEK is the handle where the EK of Options may be persistent: 0x81010001 for the
	// RSA-2048 EK of most machines, 0 for nowhere. If the key at that handle is the EK, it is
	// used, which saves creating the EK for every message. If there is no key or a different
	// one, the template is used.
	PersistentEK tpm2.TPMHandle
}

// Provider returns "tpm".
func (t *TPM) Provider() string { return tpm.Provider }

// Open opens the TPM.
func (t *TPM) Open(ctx context.Context) (attest.Prover, error) {
	open := t.Device
	if open == nil {
		open = func() (transport.TPMCloser, error) { return tpm.OpenTPM(t.Path) }
	}
	device, err := open()
	if err != nil {
		return nil, err
	}
	if device == nil {
		return nil, refusal.Config("Device", "no TPM", "an open one")
	}
	options, err := t.options()
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	e := &tpmEvidence{device: device, shared: tpmkey.Share(tpmcapability.Remember(device))}
	if t.Device == nil {
		e.path = t.Path
	}
	if len(options.Certificates) == 0 {
		e.ek = options.EK
	}
	if err := e.prove(ctx, t, options); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return e, nil
}

// maxPasswordFile bounds the file of a password, in bytes.
const maxPasswordFile = 4 << 10

// options are the prover's, with the password that its file has now.
func (t *TPM) options() (tpm.ProverOptions, error) {
	if t.AKPasswordFile == "" {
		return t.Options, nil
	}
	text, err := safefile.Read(t.AKPasswordFile, maxPasswordFile, safefile.Private)
	if err != nil {
		return t.Options, err
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) == 0 || bytes.HasSuffix(text, []byte("\r")) { // each try with a wrong one counts
		return t.Options, refusal.Config("AKPasswordFile "+t.AKPasswordFile, "no password, or one before CR LF", "a password, and at most one LF after it")
	}
	options := t.Options
	options.AKPassword = secret.New(text)
	return options, nil
}

// password identifies the password by its file as it is now; "" without one.
func (t *TPM) password() string {
	info, err := os.Stat(t.AKPasswordFile)
	if err != nil {
		return t.AKPasswordFile
	}
	return fmt.Sprintf("%s of %s, %d bytes", t.AKPasswordFile, info.ModTime().UTC().Format(time.RFC3339Nano), info.Size())
}

// tpmEvidence is an open TPM.
type tpmEvidence struct {
	device transport.TPMCloser
	shared transport.TPM
	attest.Prover
	// persistent is a prover that uses the persistent EK; nil if there is none.
	persistent attest.Prover
	// missed says that the persistent key is not the EK.
	missed atomic.Bool
	path   string // "" for one that TPM.Device opened
	// ek is the EK whose certificate is read from NV; nil for none.
	ek        *tpm.EKOrigin
	presented atomic.Pointer[attest.Presented]
}

// prove creates the provers.
func (e *tpmEvidence) prove(ctx context.Context, t *TPM, options tpm.ProverOptions) (err error) {
	if e.Prover, err = tpm.NewProver(e.shared, t.AK, options); err != nil || t.Options.EK == nil || t.PersistentEK == 0 {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	there, err := tpmcapability.Has(e.shared, t.PersistentEK)
	if err != nil || !there {
		return err
	}
	options.EK = &tpm.EKOrigin{Handle: t.PersistentEK, CertificateIndex: t.Options.EK.CertificateIndex}
	e.persistent, err = tpm.NewProver(e.shared, t.AK, options)
	return err
}

// Use prefers the persistent EK, and falls back to the template if that key cannot be used:
// the prover finds that out before it lends a session.
func (e *tpmEvidence) Use(ctx context.Context, stage attest.Stage, do func(attest.Session) error) error {
	f := func(s attest.Session) error {
		if p, err := s.Present(); err == nil {
			e.presented.Store(p)
		}
		return do(s)
	}
	return e.withRoom(ctx, func() error {
		if e.persistent != nil && !e.missed.Load() {
			lent := false
			err := e.persistent.Use(ctx, stage, func(s attest.Session) error {
				lent = true
				return f(s)
			})
			if err == nil || lent || ctx.Err() != nil || tpmcapability.NoRoom(err) || errors.Is(err, refusal.ErrRetry) {
				return err
			}
			e.missed.Store(true)
		}
		return e.Prover.Use(ctx, stage, f)
	})
}

// explain adds to a denial how the control plane can trust an EK that has no certificate in the TPM.
func (e *tpmEvidence) explain(denial error) error {
	p := e.presented.Load()
	if e.ek == nil || p == nil {
		return denial
	}
	var others []string
	for _, ek := range []struct {
		name  string
		index tpm2.TPMHandle
	}{
		{"rsa-2048", tpm.EKRSA2048().CertificateIndex}, {"p-256", tpm.EKP256().CertificateIndex}, {"rsa-2048-high", tpm.EKHigh(1).CertificateIndex},
		{"p-256-high", tpm.EKHigh(2).CertificateIndex}, {"p-384-high", tpm.EKHigh(3).CertificateIndex}, {"rsa-3072-high", tpm.EKHigh(6).CertificateIndex},
	} {
		has, err := tpmcapability.Has(e.shared, ek.index)
		if err != nil || has && ek.index == e.ek.CertificateIndex {
			return denial
		}
		if has {
			others = append(others, ek.name)
		}
	}
	return fmt.Errorf("%w; the TPM has no certificate of this EK (NV index 0x%08x): the control plane takes it once tpm.allowedEKs of its config.yaml lists ek:sha256:%x. The TPM has certificates of the EKs: %s",
		denial, uint32(e.ek.CertificateIndex), sha256.Sum256(p.MachineKey), cmp.Or(strings.Join(others, ", "), "none"))
}

// withRoom runs do, once more if others left no room.
func (e *tpmEvidence) withRoom(ctx context.Context, do func() error) error {
	return tpmcapability.WithRoom(ctx, e.path, e.shared, do)
}

// Close closes the provers and the TPM.
func (e *tpmEvidence) Close() error {
	err := e.Prover.Close()
	if e.persistent != nil {
		err = errors.Join(err, e.persistent.Close())
	}
	return errors.Join(err, e.device.Close())
}

// tpmSealed is a key of the TPM.
type tpmSealed struct{ *tpmkey.Key }

// File returns the key's file in the format of OpenSSL's tpm2 provider.
func (k tpmSealed) File() ([]byte, error) { return k.Key.File().Marshal() }

// CreateKey creates a P-256 key.
func (e *tpmEvidence) CreateKey(ctx context.Context) (sealedKey, error) {
	return e.sealed(ctx, func() (*tpmkey.Key, error) { return tpmkey.Create(ctx, e.shared, tpmkey.ECDSAP256, tpmkey.Options{}) })
}

// LoadKey loads a key.
func (e *tpmEvidence) LoadKey(ctx context.Context, file []byte) (sealedKey, error) {
	parsed, err := tpmkey.ParseFile(file)
	if err != nil {
		return nil, err
	}
	return e.sealed(ctx, func() (*tpmkey.Key, error) { return tpmkey.Load(ctx, e.shared, parsed, tpmkey.LoadOptions{}) })
}

func (e *tpmEvidence) sealed(ctx context.Context, get func() (*tpmkey.Key, error)) (sealedKey, error) {
	var key *tpmkey.Key
	err := e.withRoom(ctx, func() (err error) {
		key, err = get()
		return err
	})
	if err != nil {
		return nil, err
	}
	return tpmSealed{key}, nil
}
