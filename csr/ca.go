package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// Backdate is how far in the past a certificate's validity begins, for clocks that
// are behind. It does not make the certificate last longer.
const Backdate = 5 * time.Minute

// ErrCA says that [NewCA] was given what makes no certificate authority for nodes.
const ErrCA Error = "the certificate authority is not usable"

// ErrOtherSigner says that a request is filed under a signer that a [Policy] or
// [Providers] do not serve, or that [CA.Issue] was asked for a certificate of one for
// which the CA does not sign. It is no refusal of the request: somebody else answers it.
const ErrOtherSigner Error = "the request is for a signer that is not served here"

// CAOptions say what a [CA] may sign.
type CAOptions struct {
	// SignerNames are the signers whose certificates the CA issues, each in full
	// and each one that [PurposeOf] knows; at least one. [SignerClientInsecure] must
	// stand alone: whoever trusts a CA trusts all its certificates alike, so nodes
	// that prove nothing need a CA of their own.
	SignerNames []string
	// MaxLifetime is the longest lifetime of a certificate, counted from now, 10
	// minutes or more, which is the least that a request can ask for; 0 means
	// [DefaultMaxExpiration], 24 hours. Certificates cannot be revoked.
	MaxLifetime time.Duration
	// MaxRecoveryLifetime is the same for recovery certificates, which are of use
	// only as long as they outlive the others; 0 means MaxLifetime.
	MaxRecoveryLifetime time.Duration
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// CA issues certificates to nodes. It is safe for use by many goroutines as far as
// its key is.
//
// Whoever has the key can be any user of a cluster whose API server trusts the CA
// for clients, system:masters included. Keep it in a process of its own, and out of
// reach of everything that only verifies.
type CA struct {
	chain     []*x509.Certificate
	chainPEM  []byte // what goes behind a leaf: the chain without its root
	roots     *x509.CertPool
	key       secret.Value[crypto.Signer]
	signers   []string
	lifetime  time.Duration
	recovery  time.Duration
	now       func() time.Time
	notBefore time.Time // the latest beginning in the chain
	notAfter  time.Time // the earliest end in the chain
}

// NewCA makes a CA of a certificate chain, the issuing CA first and each certificate
// signed by the next, and the issuing CA's private key: RSA of 2048 bits or more,
// ECDSA on P-256 or a longer curve, or Ed25519, in memory, in an HSM or elsewhere. The
// chain may end before its root. Every certificate in it must be a CA
// (basicConstraints) with keyCertSign in its keyUsage, have a subject, and leave room
// for one that is no CA below the first.
// Extended key usages in the chain must cover those of every signer, and name
// constraints leave some DNS name or address to serving certificates; a single
// certificate that they forbid is refused when it is issued.
//
// The certificates' times are not looked at here but whenever a certificate is
// issued. Errors match [ErrCA].
func NewCA(chain []*x509.Certificate, key crypto.Signer, opts *CAOptions) (*CA, error) {
	if opts == nil {
		opts = &CAOptions{}
	}
	ca := &CA{key: secret.New(key), signers: slices.Clone(opts.SignerNames), lifetime: opts.MaxLifetime, recovery: opts.MaxRecoveryLifetime, now: opts.Now}
	if ca.lifetime == 0 {
		ca.lifetime = DefaultMaxExpiration
	}
	if ca.recovery == 0 {
		ca.recovery = ca.lifetime
	}
	if ca.now == nil {
		ca.now = time.Now
	}
	if ca.lifetime < minExpiration || ca.recovery < minExpiration {
		return nil, fmt.Errorf("%w: a lifetime under %v", ErrCA, minExpiration)
	}
	if err := checkSignerNames(ca.signers); err != nil {
		return nil, err
	}
	if err := ca.readChain(chain); err != nil {
		return nil, err
	}
	if err := ca.checkKey(); err != nil {
		return nil, err
	}
	return ca, nil
}

func checkSignerNames(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: SignerNames is empty", ErrCA)
	}
	for _, name := range names {
		if _, err := PurposeOf(name); err != nil {
			return fmt.Errorf("%w: SignerNames: %w", ErrCA, err)
		}
		if name == SignerClientInsecure && len(names) > 1 {
			return fmt.Errorf("%w: SignerNames has %s beside others", ErrCA, name)
		}
	}
	return nil
}

// readChain takes copies of the certificates, as their DER says they are.
func (ca *CA) readChain(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: no certificate", ErrCA)
	}
	for i, given := range chain {
		if given == nil {
			return fmt.Errorf("%w: certificate %d is nil", ErrCA, i)
		}
		c, err := x509.ParseCertificate(given.Raw)
		if err != nil {
			return fmt.Errorf("%w: certificate %d: %w", ErrCA, i, err)
		}
		switch {
		case !c.IsCA:
			err = fmt.Errorf("%w: certificate %d (%s) is not a CA", ErrCA, i, refusal.Quote(c.Subject.String()))
		case c.KeyUsage&x509.KeyUsageCertSign == 0:
			err = fmt.Errorf("%w: certificate %d (%s) may not sign certificates", ErrCA, i, refusal.Quote(c.Subject.String()))
		case c.MaxPathLen >= 0 && c.MaxPathLen < i:
			err = fmt.Errorf("%w: certificate %d (%s) allows %d CAs below it, not %d", ErrCA, i, refusal.Quote(c.Subject.String()), c.MaxPathLen, i)
		case len(c.UnhandledCriticalExtensions) > 0:
			err = fmt.Errorf("%w: certificate %d (%s) has an unknown critical extension", ErrCA, i, refusal.Quote(c.Subject.String()))
		case len(c.Subject.Names) == 0:
			err = fmt.Errorf("%w: certificate %d has no subject", ErrCA, i)
		case i > 0:
			err = ca.checkLink(c)
		}
		if err == nil {
			err = ca.checkConstraints(c, i)
		}
		if err != nil {
			return err
		}
		ca.add(c)
	}
	ca.roots = x509.NewCertPool()
	ca.roots.AddCert(ca.chain[0])
	return nil
}

// checkConstraints refuses a certificate in the chain under which no certificate of
// one of the CA's signers would verify: for its extended key usages, or because its
// name constraints exclude every name that a serving certificate can have.
func (ca *CA) checkConstraints(c *x509.Certificate, i int) error {
	for _, name := range ca.signers {
		purpose, _, _ := parseSignerName(name)
		usage := x509.ExtKeyUsageClientAuth
		if purpose == PurposeServing {
			usage = x509.ExtKeyUsageServerAuth
		}
		if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) > 0 && !slices.Contains(c.ExtKeyUsage, usage) && !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) {
			return fmt.Errorf("%w: certificate %d (%s) has extended key usages, and not %s, which %s needs", ErrCA, i, refusal.Quote(c.Subject.String()), purpose.authUsage(), name)
		}
		if purpose == PurposeServing && excludesAllNames(c) {
			return fmt.Errorf("%w: the name constraints of certificate %d (%s) exclude every name, and %s needs one", ErrCA, i, refusal.Quote(c.Subject.String()), name)
		}
	}
	return nil
}

// excludesAllNames says whether name constraints (RFC 5280, 4.2.1.10) leave neither a
// DNS name nor an IP address.
func excludesAllNames(c *x509.Certificate) bool {
	whole := func(size int) bool {
		return slices.ContainsFunc(c.ExcludedIPRanges, func(n *net.IPNet) bool {
			ones, bits := n.Mask.Size()
			return ones == 0 && bits == 8*size
		})
	}
	return slices.Contains(c.ExcludedDNSDomains, "") && whole(net.IPv4len) && whole(net.IPv6len)
}

// checkLink holds the last certificate read against the one that should have signed
// it.
func (ca *CA) checkLink(issuer *x509.Certificate) error {
	last := len(ca.chain) - 1
	err := ca.chain[last].CheckSignatureFrom(issuer)
	if err == nil && !bytes.Equal(ca.chain[last].RawIssuer, issuer.RawSubject) {
		err = fmt.Errorf("its issuer is %s", refusal.Quote(ca.chain[last].Issuer.String()))
	}
	if err != nil {
		return fmt.Errorf("%w: certificate %d is not signed by certificate %d: %w", ErrCA, last, last+1, err)
	}
	return nil
}

func (ca *CA) add(c *x509.Certificate) {
	if len(ca.chain) == 0 || c.NotBefore.After(ca.notBefore) {
		ca.notBefore = c.NotBefore
	}
	if len(ca.chain) == 0 || c.NotAfter.Before(ca.notAfter) {
		ca.notAfter = c.NotAfter
	}
	ca.chain = append(ca.chain, c)
	if !bytes.Equal(c.RawSubject, c.RawIssuer) {
		ca.chainPEM = append(ca.chainPEM, encodeCertificate(c.Raw)...)
	}
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// checkKey holds the private key against the issuing CA's certificate.
func (ca *CA) checkKey() error {
	if !completeKey(ca.key.Reveal()) {
		return fmt.Errorf("%w: no key, or one that lacks a part", ErrCA)
	}
	public, ok := ca.chain[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(ca.key.Reveal().Public()) {
		return fmt.Errorf("%w: the key is not that of %s", ErrCA, refusal.Quote(ca.chain[0].Subject.String()))
	}
	switch weak := ca.chain[0].PublicKey.(type) {
	case *rsa.PublicKey:
		if weak.N.BitLen() < minRSABits {
			return fmt.Errorf("%w: an RSA key of %d bits", ErrCA, weak.N.BitLen())
		}
	case *ecdsa.PublicKey:
		if weak.Curve == elliptic.P224() {
			return fmt.Errorf("%w: an ECDSA key on P-224", ErrCA)
		}
	}
	return nil
}

// usableAt says whether the whole chain is valid at now; the error is one to retry.
func (ca *CA) usableAt(now time.Time) error {
	if now.Before(ca.notBefore) || now.After(ca.notAfter) {
		return Retry(fmt.Errorf("the certificate authority is valid from %s to %s, and now is %s",
			ca.notBefore.Format(time.RFC3339), ca.notAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
	}
	return nil
}

// maxLifetime is the cap for certificates of a purpose.
func (ca *CA) maxLifetime(p Purpose) time.Duration {
	if p == PurposeRecovery {
		return ca.recovery
	}
	return ca.lifetime
}
