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
	// if such a TPM has no room left, all loaded objects and sessions are flushed.
	Path string
	// Device, instead of Path, opens the TPM: for Windows, and for tests.
	Device func() (transport.TPMCloser, error)
	// AK says where the attestation key comes from.
	AK tpm.AKSource
	// AKPasswordFile, if set, is the file of the AK's password, which each use of the TPM reads
	// anew, in place of Options.AKPassword: of mode 0600, at most 4 KiB; a newline at its end is
	// dropped. A wrong password is not tried again until the file changes, or Rotate is called.
	AKPasswordFile string
	// Options are the prover's options. With EK set, the node attests by RoadEK.
	Options tpm.ProverOptions
	// PersistentEK is the handle where the EK of Options may be persistent: 0x81010001 for the
	// RSA-2048 EK of most machines; 0 for no handle. If the key at that handle is the EK, it is
	// used, which saves creating the EK for every message; otherwise the template is used.
	PersistentEK tpm2.TPMHandle
}

// Provider returns "tpm".
func (t *TPM) Provider() string { return tpm.Provider }

// Open opens the TPM.
func (t *TPM) Open(ctx context.Context) (attest.Prover, error) {
	if t == nil {
		return nil, refusal.Config("TPM", "nil", "a TPM")
	}
	open := t.Device
	if open == nil {
		open = func() (transport.TPMCloser, error) { return tpm.OpenTPM(t.Path) }
	}
	device, err := open()
	if err != nil {
		return nil, err
	}
	if device == nil {
		return nil, refusal.Config("Device", "nil", "an open TPM")
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

// options returns the prover's options, with the password from its file.
func (t *TPM) options() (tpm.ProverOptions, error) {
	if t.AKPasswordFile == "" {
		return t.Options, nil
	}
	text, err := safefile.Read(t.AKPasswordFile, maxPasswordFile, safefile.Private)
	if err != nil {
		return t.Options, err
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) == 0 || bytes.HasSuffix(text, []byte("\r")) { // the TPM counts each wrong password
		return t.Options, refusal.Config("AKPasswordFile "+t.AKPasswordFile, "empty, or with CR LF at its end", "a password, with at most one LF after it")
	}
	options := t.Options
	options.AKPassword = secret.New(text)
	return options, nil
}

// password identifies the password by its file's time and size; "" without a file.
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
	// persistent is a prover that uses the persistent EK; nil without one.
	persistent attest.Prover
	// missed is set once the persistent key has turned out not to be the EK.
	missed atomic.Bool
	path   string // "" if TPM.Device opened it
	// ek is the EK whose certificate is read from NV, or nil.
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

// Use prefers the persistent EK, and falls back to the template if the prover refuses that key, which
// it does before it calls do.
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

// explain adds to a denial how the control plane can trust an EK without a certificate in the TPM.
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
	return fmt.Errorf("%w; the TPM has no certificate of this EK (NV index 0x%08x): the control plane accepts it once tpm.allowedEKs of its config.yaml lists ek:sha256:%x. The TPM has certificates of the EKs: %s",
		denial, uint32(e.ek.CertificateIndex), sha256.Sum256(p.MachineKey), cmp.Or(strings.Join(others, ", "), "none"))
}

// withRoom runs do, a second time if the TPM had no room for it.
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

// tpmSealed is a key that cannot leave the TPM.
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
