package csr

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// CAConfig configures a [CA].
type CAConfig struct {
	// SignerNames are the signers whose certificates the CA issues: at least one, each in
	// full and known to [PurposeOf]. [SignerClientInsecure] must be the only one if it is
	// listed: anyone who trusts a CA trusts all its certificates alike, so nodes that prove
	// nothing need a CA of their own.
	SignerNames []string
	// ClusterIDs are the names of the one cluster whose nodes the CA's certificates are for,
	// as in [Policy.ClusterIDs]: a request verified for another cluster is refused.
	ClusterIDs []string
	// MaxLifetime is the longest lifetime of a certificate, counted from now,
	// [MinLifetime] or more; 0 means [DefaultMaxLifetime], 24 hours. Certificates cannot
	// be revoked.
	MaxLifetime time.Duration
	// MaxRecoveryLifetime is the same for recovery certificates, which are only useful if
	// they outlive the others; 0 means MaxLifetime.
	MaxRecoveryLifetime time.Duration
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// CA issues certificates to nodes. It is safe for concurrent use if its key is.
//
// Anyone who has the key can be any user of a cluster whose API server trusts the CA for
// clients, including a member of system:masters. Keep it in a process of its own, out of
// reach of everything that only verifies.
type CA struct {
	chain    []*x509.Certificate
	chainPEM []byte // what follows a leaf: the chain without its root
	roots    *x509.CertPool
	key      secret.Value[crypto.Signer]
	config   CAConfig // with its defaults
}

// NewCA makes a CA from a certificate chain, with the issuing CA first and each certificate
// signed by the next, and the issuing CA's private key: RSA of 2048 bits or more, ECDSA on
// P-256 or a longer curve, or Ed25519, in memory, in an HSM or elsewhere. The chain may end
// before its root. Every certificate in it must be a CA (basicConstraints) with keyCertSign
// in its keyUsage, have a subject, and have a path length that leaves room for a non-CA
// certificate below the first. Extended key usages in the chain must cover the usage of every
// signer, and name constraints must leave some DNS name or address for serving certificates;
// an individual certificate that they forbid is refused when it is issued. A certificate names
// the next by what its issuer's name means (RFC 5280, 7.1); programs in Go, such as
// kube-apiserver, compare the bytes: where these differ, let them trust the lower CA itself.
//
// The certificates' validity periods are checked not here but whenever a certificate is
// issued. Errors match [refusal.CheckConfig].
func NewCA(chain []*x509.Certificate, key crypto.Signer, c CAConfig) (*CA, error) {
	c.SignerNames, c.ClusterIDs = slices.Clone(c.SignerNames), slices.Clone(c.ClusterIDs)
	c.MaxLifetime = cmp.Or(c.MaxLifetime, DefaultMaxLifetime)
	c.MaxRecoveryLifetime = cmp.Or(c.MaxRecoveryLifetime, c.MaxLifetime)
	c.Now = wallclock.Or(c.Now)
	ca := &CA{key: secret.New(key), config: c}
	err := cmp.Or(checkLifetime("MaxLifetime", c.MaxLifetime, MinLifetime, math.MaxInt64),
		checkLifetime("MaxRecoveryLifetime", c.MaxRecoveryLifetime, MinLifetime, math.MaxInt64),
		faults{{len(c.SignerNames) > 1 && slices.Contains(c.SignerNames, SignerClientInsecure), refusal.CheckConfig,
			"SignerNames " + SignerClientInsecure + " and others", "that signer only, or only the others"},
		}.first(), checkSignerNames(c.SignerNames), checkClusterIDs(c.ClusterIDs), ca.readChain(chain))
	if err == nil {
		err = ca.checkKey()
	}
	if err != nil {
		return nil, err
	}
	return ca, nil
}

// SignerNames returns the signers whose certificates the CA issues; nil for a nil CA.
func (ca *CA) SignerNames() []string {
	if ca == nil {
		return nil
	}
	return slices.Clone(ca.config.SignerNames)
}

// readChain copies the certificates by parsing their DER again.
func (ca *CA) readChain(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return refusal.Config("chain", "", "at least one certificate")
	}
	for i, given := range chain {
		if given == nil {
			return refusal.Config("certificate "+strconv.Itoa(i), "", "one")
		}
		c, err := x509.ParseCertificate(given.Raw)
		if err != nil {
			return &Error{Check: refusal.CheckConfig, Got: "a malformed certificate " + strconv.Itoa(i), Err: err}
		}
		field := certificateField(c, i)
		if err := cmp.Or(faults{
			{!c.IsCA, refusal.CheckConfig, field + " is no CA", "one"},
			{c.KeyUsage&x509.KeyUsageCertSign == 0, refusal.CheckConfig, field + " may not sign certificates", "keyCertSign"},
			{c.MaxPathLen >= 0 && c.MaxPathLen < i, refusal.CheckConfig,
				field + " allows " + strconv.Itoa(c.MaxPathLen) + " CAs below it", strconv.Itoa(i) + " or more"},
			{len(c.UnhandledCriticalExtensions) > 0, refusal.CheckConfig, field + " has an unknown critical extension", "none"},
			{len(c.Subject.Names) == 0, refusal.CheckConfig, field + " has no subject", "one"},
		}.first(), ca.checkLink(c), ca.checkConstraints(c, field)); err != nil {
			return err
		}
		ca.chain = append(ca.chain, c)
		if !dn.SelfIssued(c) {
			ca.chainPEM = append(ca.chainPEM, encodeCertificate(c.Raw)...)
		}
	}
	ca.roots = x509.NewCertPool()
	ca.roots.AddCert(ca.chain[0])
	return nil
}

// certificateField names a certificate of the chain.
func certificateField(c *x509.Certificate, i int) string {
	return "certificate " + strconv.Itoa(i) + " (" + refusal.Quote(c.Subject.String()) + ")"
}

// checkConstraints refuses a certificate in the chain under which no certificate of one of
// the CA's signers would verify, either because of its extended key usages or because its
// name constraints exclude every name that a serving certificate can have.
func (ca *CA) checkConstraints(c *x509.Certificate, field string) error {
	for _, name := range ca.config.SignerNames {
		purpose, _, _ := parseSignerName(name)
		usage := purposes[purpose].extKeyUsage
		if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) > 0 && !slices.Contains(c.ExtKeyUsage, usage) && !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) {
			return refusal.Config(field, "has other extended key usages", purposes[purpose].auth+", which "+name+" needs")
		}
		if purpose == PurposeServing && excludesAllNames(c) {
			return refusal.Config(field, "has name constraints that exclude every name", "one name that "+name+" can have")
		}
	}
	return nil
}

// excludesAllNames reports whether name constraints (RFC 5280, 4.2.1.10) leave neither a DNS
// name nor an IP address.
func excludesAllNames(c *x509.Certificate) bool {
	whole := func(size int) bool {
		return slices.ContainsFunc(c.ExcludedIPRanges, func(n *net.IPNet) bool {
			ones, bits := n.Mask.Size()
			return ones == 0 && bits == 8*size
		})
	}
	return slices.Contains(c.ExcludedDNSDomains, "") && whole(net.IPv4len) && whole(net.IPv6len)
}

// checkLink checks the last certificate read, if there is one, against the one that should have signed it.
func (ca *CA) checkLink(issuer *x509.Certificate) error {
	last := len(ca.chain) - 1
	if last < 0 {
		return nil
	}
	err := ca.chain[last].CheckSignatureFrom(issuer)
	if err == nil && !dn.Equal(ca.chain[last].RawIssuer, issuer.RawSubject) {
		err = fmt.Errorf("its issuer is %s", refusal.Quote(ca.chain[last].Issuer.String()))
	}
	if err != nil {
		return &Error{Check: refusal.CheckConfig, Got: certificateField(ca.chain[last], last), Want: "one that certificate " + strconv.Itoa(last+1) + " has signed", Err: err}
	}
	return nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// checkKey checks the private key against the issuing CA's certificate.
func (ca *CA) checkKey() error {
	if !completeKey(ca.key.Reveal()) {
		return refusal.Config("key", "that lacks a part, or none", "the private key of the first certificate")
	}
	public, ok := ca.chain[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(ca.key.Reveal().Public()) {
		return refusal.Config("key", "of another certificate", "that of "+refusal.Quote(ca.chain[0].Subject.String()))
	}
	switch weak := ca.chain[0].PublicKey.(type) {
	case *rsa.PublicKey:
		if weak.N.BitLen() < minRSABits {
			return refusal.Config("key", "of "+strconv.Itoa(weak.N.BitLen())+" bits", strconv.Itoa(minRSABits)+" or more")
		}
	case *ecdsa.PublicKey:
		if weak.Curve == elliptic.P224() {
			return refusal.Config("key", "on P-224", "P-256 or a longer curve")
		}
	}
	return nil
}

// usableAt checks that the whole chain is valid at now; the error matches refusal.ErrRetry.
func (ca *CA) usableAt(now time.Time) error {
	for _, c := range ca.chain {
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			return refusal.Retry(fmt.Errorf("the certificate authority %s is valid from %s to %s, and now is %s",
				refusal.Quote(c.Subject.String()), rfc3339(c.NotBefore), rfc3339(c.NotAfter), rfc3339(now)))
		}
	}
	return nil
}
