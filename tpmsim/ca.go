package tpmsim

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"math/big"
	"sync"
	"time"
)

// Validity of what a CA issues, counted from its clock: backdated by an hour, as
// machines and test machines disagree about the time, and long, as a machine's
// certificates are.
const (
	backdate     = time.Hour
	caLifetime   = 30 * 365 * 24 * time.Hour
	leafLifetime = 20 * 365 * 24 * time.Hour
)

// CAOptions say what CA is wanted. nil and each zero field are sensible defaults.
type CAOptions struct {
	// Name begins the common names of the CA's certificates. "": "tpmsim".
	Name string

	// Seed, at most 1 KiB, makes keys, serial numbers and signatures a function of
	// these bytes, so that the same calls at the same Now give the same certificates
	// byte for byte. nil: random ones. A CA with a seed has EC keys.
	Seed []byte

	// Algorithm of the CA's three keys: P256, P384, RSA2048 or RSA3072. Zero:
	// P256.
	Algorithm Algorithm

	// Now is the clock from which validity is counted. nil: time.Now.
	Now func() time.Time
}

// CA is a certification authority for TPMs: a root, below it one intermediate that
// issues EK certificates and one that issues AK certificates. It certifies every
// key that it is shown. It is safe for concurrent use.
type CA struct {
	now  func() time.Time
	rand io.Reader // nil: deterministic ECDSA (RFC 6979)
	seed []byte

	root, ek, ak issuer

	mu     sync.Mutex
	serial uint64 // certificates issued; with a seed, serial numbers follow from it
}

// issuer is a CA certificate and its key.
type issuer struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewCA makes the keys and certificates of a CA. The error wraps [ErrOptions] or
// comes from crypto/x509.
func NewCA(opts *CAOptions) (*CA, error) {
	var o CAOptions
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = "tpmsim"
	}
	if o.Algorithm == 0 {
		o.Algorithm = P256
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Seed) > maxSeedSize {
		return nil, fmt.Errorf("%w: Seed has %d bytes, at most %d", ErrOptions, len(o.Seed), maxSeedSize)
	}
	ca := &CA{now: o.Now, rand: rand.Reader}
	if o.Seed != nil {
		ca.seed, ca.rand = bytes.Clone(o.Seed), nil
	}
	var err error
	for _, step := range []struct {
		name   string
		to     *issuer
		parent *issuer
	}{
		{"root", &ca.root, &ca.root},
		{"EK CA", &ca.ek, &ca.root},
		{"AK CA", &ca.ak, &ca.root},
	} {
		if step.to.key, err = ca.newKey(step.name, o.Algorithm); err != nil {
			return nil, err
		}
		if err := ca.certifyCA(step.to, step.parent, o.Name+" "+step.name); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

// newKey makes a key, which follows from the seed and the label if there is a seed.
func (ca *CA) newKey(label string, a Algorithm) (crypto.Signer, error) {
	var curve elliptic.Curve
	switch a {
	case P256:
		curve = elliptic.P256()
	case P384:
		curve = elliptic.P384()
	case RSA2048, RSA3072:
		if ca.seed != nil {
			return nil, fmt.Errorf("%w: an RSA key cannot follow from a seed; use P256 or P384", ErrOptions)
		}
		if a == RSA3072 {
			return rsa.GenerateKey(rand.Reader, 3072)
		}
		return rsa.GenerateKey(rand.Reader, 2048)
	default:
		return nil, fmt.Errorf("%w: no CA with keys of algorithm %v", ErrOptions, a)
	}
	if ca.seed == nil {
		return ecdsa.GenerateKey(curve, rand.Reader)
	}
	// A scalar that is zero or not below the order is refused; for P-256 that is one
	// in 2^32, so the loop ends at its first turn but for seeds that nobody meets.
	for i := range 100 {
		raw, err := hkdf.Key(sha256.New, ca.seed, nil, fmt.Sprintf("tpmsim CA key %s %d", label, i), curve.Params().BitSize/8)
		if err != nil {
			return nil, fmt.Errorf("tpmsim: CA key: %w", err)
		}
		if k, err := ecdsa.ParseRawPrivateKey(curve, raw); err == nil {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%w: no key follows from this seed", ErrOptions)
}

// certifyCA issues the CA certificate for to's key.
func (ca *CA) certifyCA(to, parent *issuer, name string) error {
	serial, err := ca.nextSerial()
	if err != nil {
		return err
	}
	now := ca.now()
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	signer := parent.certificate
	if to == parent {
		signer = t
	} else {
		t.MaxPathLenZero = true
	}
	to.certificate, err = ca.sign(t, signer, to.key.Public(), parent.key)
	return err
}

// sign makes a certificate and parses it.
func (ca *CA) sign(template, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	if template.SubjectKeyId == nil {
		id, err := subjectKeyID(pub)
		if err != nil {
			return nil, err
		}
		template.SubjectKeyId = id
	}
	der, err := x509.CreateCertificate(ca.rand, template, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("tpmsim: issue a certificate: %w", err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("tpmsim: issued a certificate that does not parse: %w", err)
	}
	return c, nil
}

// subjectKeyID is method 1 of RFC 7093: SHA-256 over the key's bits, 160 bits of it.
func subjectKeyID(pub crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("tpmsim: issue a certificate: %w", err)
	}
	var spki struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &spki); err != nil {
		return nil, fmt.Errorf("tpmsim: issue a certificate: %w", err)
	}
	sum := sha256.Sum256(spki.Key.Bytes)
	return sum[:20], nil
}

// nextSerial gives a positive serial number of 126 bits.
func (ca *CA) nextSerial() (*big.Int, error) {
	ca.mu.Lock()
	ca.serial++
	n := ca.serial
	ca.mu.Unlock()
	var b [16]byte
	if ca.seed == nil {
		rand.Read(b[:])
	} else {
		raw, err := hkdf.Key(sha256.New, ca.seed, nil, fmt.Sprintf("tpmsim serial %d", n), len(b))
		if err != nil {
			return nil, fmt.Errorf("tpmsim: serial number: %w", err)
		}
		copy(b[:], raw)
	}
	b[0] = b[0]&0x3f | 0x20
	return new(big.Int).SetBytes(b[:]), nil
}

// Root returns the self-signed root.
func (ca *CA) Root() *x509.Certificate { return ca.root.certificate }

// EKIntermediate returns the certificate of the CA that issues EK certificates.
func (ca *CA) EKIntermediate() *x509.Certificate { return ca.ek.certificate }

// AKIntermediate returns the certificate of the CA that issues AK certificates.
func (ca *CA) AKIntermediate() *x509.Certificate { return ca.ak.certificate }

// Intermediates returns both intermediates, that for EKs first.
func (ca *CA) Intermediates() []*x509.Certificate {
	return []*x509.Certificate{ca.ek.certificate, ca.ak.certificate}
}

// Pool returns a new pool that holds the root alone.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.root.certificate)
	return p
}

// Chain returns the leaf and the intermediate that issued it, root left out: what a
// machine sends along. A certificate of another CA comes back alone; nil gives nil.
func (ca *CA) Chain(leaf *x509.Certificate) []*x509.Certificate {
	if leaf == nil {
		return nil
	}
	for _, i := range ca.Intermediates() {
		if bytes.Equal(leaf.RawIssuer, i.RawSubject) && bytes.Equal(leaf.AuthorityKeyId, i.SubjectKeyId) {
			return []*x509.Certificate{leaf, i}
		}
	}
	return []*x509.Certificate{leaf}
}
