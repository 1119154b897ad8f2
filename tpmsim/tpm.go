package tpmsim

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"

	"github.com/google/go-tpm/tpm2/transport"
)

// commandHeaderSize is the size of a TPM command's header in bytes: tag,
// commandSize, commandCode (TPM 2.0 Part 1, section 18).
const commandHeaderSize = 10

// TPM is a running, provisioned TPM. It implements go-tpm's transport.TPM, so it can be
// passed directly to go-tpm and to package attest. It is safe for concurrent use: commands
// queue up, as for a real TPM, but all users share its few slots for objects and sessions.
type TPM struct {
	mu       sync.Mutex // serialises commands; guards dev
	dev      *device    // nil once closed
	tcti     string
	ca       *CA
	eks, aks map[Algorithm]key
	akCert   CertificateOptions // the identity that CertifyAK puts into certificates
}

// device is an emulator that has been started. reset turns it off and on, with
// TPM2_Shutdown and TPM2_Startup(CLEAR).
type device struct {
	tpm          transport.TPM
	reset, close func() error
}

// key is a provisioned EK or AK.
type key struct {
	public      crypto.PublicKey
	template    []byte // TPMT_PUBLIC
	certificate *x509.Certificate
}

// Send runs one command; command and response are encoded as in TPM 2.0 Part 1, section 18.
// After Close it is an error; any other is one from the emulator's transport; an error code
// from the TPM itself is a response, not an error.
func (t *TPM) Send(cmd []byte) ([]byte, error) {
	if len(cmd) < commandHeaderSize {
		return nil, fmt.Errorf("tpmsim: a command of %d bytes is shorter than its header of %d", len(cmd), commandHeaderSize)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dev == nil {
		return nil, errClosed
	}
	return t.dev.tpm.Send(cmd)
}

// Reset turns the TPM off and on: TPM2_Shutdown, power cycle, TPM2_Startup, all
// with TPM_SU_CLEAR. Transient objects and sessions are lost, resetCount increases by
// one, and NV memory and hierarchies are kept.
func (t *TPM) Reset() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dev == nil {
		return errClosed
	}
	if err := t.dev.reset(); err != nil {
		return fmt.Errorf("tpmsim: reset: %w", err)
	}
	return nil
}

// Close ends the TPM and everything that belongs to it. Afterwards the simulator can be
// opened again; an swtpm process has ended and its folder is gone. A second Close does
// nothing.
func (t *TPM) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dev == nil {
		return nil
	}
	err := t.dev.close()
	t.dev = nil
	if err != nil {
		return fmt.Errorf("tpmsim: close: %w", err)
	}
	return nil
}

// TCTI returns the value of TPM2TOOLS_TCTI with which tpm2-tools talk to this TPM,
// or "" for the in-process simulator, which no other process can reach.
func (t *TPM) TCTI() string { return t.tcti }

// CA returns the CA that issued this TPM's certificates.
func (t *TPM) CA() *CA { return t.ca }

// EKPublic returns the public key of the EK with that algorithm, or nil if this TPM was
// not provisioned with one.
func (t *TPM) EKPublic(a Algorithm) crypto.PublicKey { return t.eks[a].public }

// EKCertificate returns the certificate of the EK with that algorithm, or nil if this
// TPM was not provisioned with one.
func (t *TPM) EKCertificate(a Algorithm) *x509.Certificate { return t.eks[a].certificate }

// EKTemplate returns the TPMT_PUBLIC from which TPM2_CreatePrimary makes the EK with
// that algorithm, or nil if this TPM was not provisioned with one.
func (t *TPM) EKTemplate(a Algorithm) []byte { return slices.Clone(t.eks[a].template) }

// AKPublic returns the public key of the AK with that algorithm, or nil if this TPM was
// not provisioned with one.
func (t *TPM) AKPublic(a Algorithm) crypto.PublicKey { return t.aks[a].public }

// AKCertificate returns the certificate of the AK with that algorithm, or nil if this
// TPM was not provisioned with one.
func (t *TPM) AKCertificate(a Algorithm) *x509.Certificate { return t.aks[a].certificate }

// AKTemplate returns the TPMT_PUBLIC from which TPM2_CreatePrimary makes the AK with
// that algorithm, with the nonce, if there is one, already in its unique field. It is
// nil if this TPM was not provisioned with such an AK.
func (t *TPM) AKTemplate(a Algorithm) []byte { return slices.Clone(t.aks[a].template) }

// CertifyAK has the TPM's CA issue a certificate for another AK. It names the same machine,
// in the same style, as [Options] specified for the AKs in NV. The CA accepts any key that
// it is given; use [CA.IssueAK] for other kinds of certificate.
func (t *TPM) CertifyAK(pub crypto.PublicKey) (*x509.Certificate, error) {
	return t.ca.IssueAK(pub, t.akCert)
}
