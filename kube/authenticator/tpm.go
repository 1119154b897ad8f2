package authenticator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
)

// TPM is the [Kind] of a TPM. It is not changed once it is in use.
type TPM struct {
	// Path is the TPM's device or socket, as tpm.OpenTPM takes it: /dev/tpmrm0 on Linux.
	Path string
	// Device, in the place of Path, opens the TPM: for Windows, and for tests.
	Device func() (transport.TPMCloser, error)
	// AK says where the attestation key comes from.
	AK tpm.AKSource
	// Options are those of the prover. With EK set the node goes the road of the EK.
	Options tpm.ProverOptions
	// PersistentEK is where the EK of Options may stand ready, 0x81010001 for the RSA-2048
	// EK of most machines; 0 for nowhere. Where a key is there that is the EK, it is used,
	// which saves the making of it in every message; where there is none or another, the
	// template is.
	PersistentEK tpm2.TPMHandle
}

// Provider returns "tpm".
func (t *TPM) Provider() string { return tpm.Provider }

// Open opens the TPM.
func (t *TPM) Open(ctx context.Context) (Evidence, error) {
	open := t.Device
	if open == nil {
		open = func() (transport.TPMCloser, error) { return tpm.OpenTPM(t.Path) }
	}
	device, err := open()
	if err != nil {
		return nil, err
	}
	e := &tpmEvidence{device: device, shared: tpmkey.Share(&remembering{TPM: device})}
	if err := e.prove(ctx, t); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return e, nil
}

// tpmEvidence is an open TPM.
type tpmEvidence struct {
	device transport.TPMCloser
	shared *tpmkey.Shared
	attest.Prover
	// persistent is a prover with the persistent EK; nil where there is none.
	persistent attest.Prover
	// missed says that the persistent key is not the EK.
	missed atomic.Bool
}

// remembering asks a TPM for each of its fixed properties once: each read of NV asks for the
// size of its buffer (TPM 2.0 Library, Part 2, 6.13 and Part 3, 30.2).
type remembering struct {
	transport.TPM
	mu       sync.Mutex
	answered map[string][]byte
}

// getFixedProperty is how the command for one begins and goes on, its size left out: no
// sessions, TPM2_GetCapability, TPM_CAP_TPM_PROPERTIES, and a property of PT_FIXED.
func getFixedProperty(command []byte) bool {
	return len(command) == 22 && binary.BigEndian.Uint16(command) == uint16(tpm2.TPMSTNoSessions) &&
		binary.BigEndian.Uint32(command[6:]) == uint32(tpm2.TPMCCGetCapability) &&
		binary.BigEndian.Uint32(command[10:]) == uint32(tpm2.TPMCapTPMProperties) && binary.BigEndian.Uint32(command[14:])>>8 == 1
}

// Send sends a command, unless its answer is known.
func (r *remembering) Send(command []byte) ([]byte, error) {
	if !getFixedProperty(command) {
		return r.TPM.Send(command)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.answered[string(command)]; ok {
		return bytes.Clone(known), nil
	}
	answer, err := r.TPM.Send(command)
	if err == nil && len(answer) >= 10 && binary.BigEndian.Uint32(answer[6:]) == uint32(tpm2.TPMRCSuccess) {
		if r.answered == nil {
			r.answered = map[string][]byte{}
		}
		r.answered[string(command)] = bytes.Clone(answer)
	}
	return answer, err
}

// prove makes the provers.
func (e *tpmEvidence) prove(ctx context.Context, t *TPM) (err error) {
	if e.Prover, err = tpm.NewProver(e.shared, t.AK, t.Options); err != nil || t.Options.EK == nil || t.PersistentEK == 0 {
		return err
	}
	there, err := e.hasHandle(ctx, t.PersistentEK)
	if err != nil || !there {
		return err
	}
	options := t.Options
	options.EK = &tpm.EKOrigin{Handle: t.PersistentEK, CertificateIndex: t.Options.EK.CertificateIndex}
	e.persistent, err = tpm.NewProver(e.shared, t.AK, options)
	return err
}

// hasHandle asks for a persistent key (TPM 2.0 Library, Part 3, 30.2).
func (e *tpmEvidence) hasHandle(ctx context.Context, handle tpm2.TPMHandle) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	answer, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: uint32(handle), PropertyCount: 1}.Execute(e.shared)
	if err != nil {
		return false, err
	}
	handles, err := answer.CapabilityData.Data.Handles()
	if err != nil {
		return false, err
	}
	return len(handles.Handle) == 1 && handles.Handle[0] == handle, nil
}

// Use prefers the persistent EK, and turns to the template where the key is not one to use:
// the prover finds that out before it lends a session.
func (e *tpmEvidence) Use(ctx context.Context, stage attest.Stage, f func(attest.Session) error) error {
	if e.persistent != nil && !e.missed.Load() {
		lent := false
		err := e.persistent.Use(ctx, stage, func(s attest.Session) error {
			lent = true
			return f(s)
		})
		if err == nil || lent || ctx.Err() != nil {
			return err
		}
		e.missed.Store(true)
	}
	return e.Prover.Use(ctx, stage, f)
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

// File is the key's file in the form of OpenSSL's tpm2 provider.
func (k tpmSealed) File() ([]byte, error) { return k.Key.File().Encode() }

// CreateKey makes a P-256 key.
func (e *tpmEvidence) CreateKey(ctx context.Context) (SealedKey, error) {
	key, err := tpmkey.Create(ctx, e.shared, tpmkey.ECDSAP256, nil)
	if err != nil {
		return nil, err
	}
	return tpmSealed{key}, nil
}

// LoadKey loads one.
func (e *tpmEvidence) LoadKey(ctx context.Context, file []byte) (SealedKey, error) {
	parsed, err := tpmkey.ParseFile(file)
	if err != nil {
		return nil, err
	}
	key, err := tpmkey.Load(ctx, e.shared, parsed, nil)
	if err != nil {
		return nil, err
	}
	return tpmSealed{key}, nil
}
