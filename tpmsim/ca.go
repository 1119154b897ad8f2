package tpmsim

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/wallclock"
)

// Validity of a CA's certificates, relative to its clock: backdated by an hour, since
// machines and test machines disagree about the time, and long, like that of a machine's
// certificates.
const (
	backdate     = time.Hour
	caLifetime   = 30 * 365 * 24 * time.Hour
	leafLifetime = 20 * 365 * 24 * time.Hour
)

// CAOptions configures a CA. Each zero field is a sensible default.
type CAOptions struct {
	// Name begins the common names of the CA's certificates. "" means "tpmsim".
	Name string

	// Seed makes keys, serial numbers and signatures a function of these bytes, so that the
	// same calls at the same Now give the same certificates byte for byte. nil means random
	// ones.
	Seed []byte

	// Now is the clock from which validity is counted. nil means time.Now.
	Now func() time.Time
}

// CA is a certification authority for TPMs: a root and, below it, one intermediate that
// issues EK certificates and one that issues AK certificates, all on P-256. It certifies
// any key that it is given. It is safe for concurrent use.
type CA struct {
	now  func() time.Time
	seed []byte // of keys and serial numbers; signatures are deterministic, too (RFC 6979)

	root, ek, ak issuer

	serial atomic.Uint64 // certificates issued
}

// issuer is a CA certificate and its key.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA makes the keys and certificates of a CA.
func NewCA(opts CAOptions) (*CA, error) {
	ca := &CA{now: wallclock.Or(opts.Now), seed: bytes.Clone(opts.Seed)}
	if ca.seed == nil {
		ca.seed = make([]byte, 32)
		rand.Read(ca.seed)
	}
	for _, of := range []struct {
		*issuer
		name string
	}{{&ca.root, "root"}, {&ca.ek, "EK CA"}, {&ca.ak, "AK CA"}} {
		raw, err := hkdf.Key(sha256.New, ca.seed, nil, "tpmsim CA key "+of.name+" 0", 32)
		if err == nil {
			of.key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), raw) // fails for one seed in 2^32
		}
		if err != nil {
			return nil, fmt.Errorf("tpmsim: CA key: %w", err)
		}
		if err := ca.certifyCA(of.issuer, cmp.Or(opts.Name, "tpmsim")+" "+of.name); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

// certifyCA issues the certificate of one of the CA's keys, signed by the root.
func (ca *CA) certifyCA(to *issuer, name string) (err error) {
	now := ca.now()
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	by := &issuer{t, ca.root.key}
	if to != &ca.root {
		by, t.MaxPathLenZero = &ca.root, true
	}
	to.certificate, err = ca.sign(t, by, to.key.Public())
	return err
}

// sign makes a certificate and parses it.
func (ca *CA) sign(template *x509.Certificate, by *issuer, pub crypto.PublicKey) (_ *x509.Certificate, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("tpmsim: issue a certificate: %w", err)
		}
	}()
	if template.SubjectKeyId == nil {
		spki, err := x509.MarshalPKIXPublicKey(pub)
		if err != nil {
			return nil, err
		}
		if template.SubjectKeyId, err = der.KeyIdentifier(spki); err != nil {
			return nil, err
		}
	}
	if template.SerialNumber == nil {
		b, err := hkdf.Key(sha256.New, ca.seed, nil, fmt.Sprintf("tpmsim serial %d", ca.serial.Add(1)), 16)
		if err != nil {
			return nil, err
		}
		b[0] = b[0]&0x3f | 0x20 // positive, of 126 bits
		template.SerialNumber = new(big.Int).SetBytes(b)
	}
	raw, err := x509.CreateCertificate(nil, template, by.certificate, pub, by.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(raw)
}

// Root returns the self-signed root.
func (ca *CA) Root() *x509.Certificate { return ca.root.certificate }

// EKIntermediate returns the certificate of the CA that issues EK certificates.
func (ca *CA) EKIntermediate() *x509.Certificate { return ca.ek.certificate }

// AKIntermediate returns the certificate of the CA that issues AK certificates.
func (ca *CA) AKIntermediate() *x509.Certificate { return ca.ak.certificate }

// Intermediates returns both intermediates, the one for EKs first.
func (ca *CA) Intermediates() []*x509.Certificate {
	return []*x509.Certificate{ca.ek.certificate, ca.ak.certificate}
}
