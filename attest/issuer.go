package attest

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/oid"
)

// Issuer is one issuer of AK certificates that the control plane trusts.
type Issuer struct {
	// Roots are the trust anchors, at least one. Nothing else is trusted: the
	// system's roots never are.
	Roots []*x509.Certificate
	// Intermediates are certificates that the node need not send. They are not
	// trusted by themselves.
	Intermediates []*x509.Certificate
	// Profile says what the issuer's AK certificates look like.
	Profile Profile
}

// Checks of a certificate chain.
const (
	// CheckCertificateEncoding: a certificate does not parse.
	CheckCertificateEncoding Check = "certificate-encoding"
	// CheckCertificateMissing: the evidence has no AK certificate.
	CheckCertificateMissing Check = "certificate-missing"
	// CheckCertificateOrder: the certificates are not one chain, leaf first and
	// root left out.
	CheckCertificateOrder Check = "certificate-order"
	// CheckCertificateExpired: the AK certificate or one above it is past its
	// end.
	CheckCertificateExpired Check = "certificate-expired"
	// CheckCertificateNotYetValid: it is before its beginning.
	CheckCertificateNotYetValid Check = "certificate-not-yet-valid"
	// CheckCertificateChain: the chain does not end at a root of any issuer, or a
	// signature or a constraint in it does not hold.
	CheckCertificateChain Check = "certificate-chain"
)

// maxCachedParents bounds the memory of verified intermediates, per issuer. Real
// issuers have some tens of them.
const maxCachedParents = 256

// issuer is an Issuer made ready, with its memory of verified intermediates.
type issuer struct {
	profile       Profile
	roots         *x509.CertPool
	intermediates *x509.CertPool
	configured    bool // there are any
	mu            sync.RWMutex
	parents       map[parentKey]*parent
}

// parentKey names what stands above a leaf: the SHA-256 over its issuer's name
// and the certificates that the node sent behind it.
type parentKey [sha256.Size]byte

// parent is the verified certificate above a leaf. Everything above it held when
// it was remembered, and holds for any leaf below it while now is inside the
// validity of all of them: constraints that look at the leaf (names) are a
// reason not to remember it.
type parent struct {
	pool                *x509.CertPool // the parent alone
	chain               []*x509.Certificate
	notBefore, notAfter time.Time
}

func newIssuer(i *Issuer) (*issuer, error) {
	if len(i.Roots) == 0 {
		return nil, errors.New("no roots")
	}
	if err := checkProfile(&i.Profile); err != nil {
		return nil, err
	}
	out := &issuer{profile: i.Profile, roots: x509.NewCertPool(), intermediates: x509.NewCertPool(),
		parents: map[parentKey]*parent{}}
	for _, c := range i.Roots {
		if c == nil {
			return nil, errors.New("a nil root")
		}
		out.roots.AddCert(c)
	}
	for _, c := range i.Intermediates {
		if c == nil {
			return nil, errors.New("a nil intermediate")
		}
		out.intermediates.AddCert(c)
		out.configured = true
	}
	return out, nil
}

func checkProfile(p *Profile) error {
	switch {
	case p.Name == "":
		return errors.New("a profile without a name")
	case p.KeyUsage == 0 && !p.InsecureAllowAnyKeyUsage:
		return fmt.Errorf("profile %s asks for no key usage", p.Name)
	case p.KeyUsage&noSigningKeyUsage != 0:
		return fmt.Errorf("profile %s asks for a key usage that no AK has", p.Name)
	case len(p.ExtKeyUsage) == 0 && !p.NoExtKeyUsage:
		return fmt.Errorf("profile %s names no extended key usage", p.Name)
	case len(p.Identity) == 0:
		return fmt.Errorf("profile %s names no source of the machine's identity", p.Name)
	}
	for _, s := range p.Identity {
		if s == nil {
			return fmt.Errorf("profile %s has a nil source of the machine's identity", p.Name)
		}
	}
	return nil
}

// presented is a chain as the evidence holds it: the leaf parsed, the rest not.
type presented struct {
	leaf  *x509.Certificate
	above [][]byte
	san   *subjectAltName
}

// parsePresented reads the leaf and what can be said without a public-key
// operation.
func parsePresented(certificates [][]byte) (*presented, error) {
	if len(certificates) == 0 {
		return nil, &Error{Check: CheckCertificateMissing, Want: "an AK certificate"}
	}
	leaf, err := x509.ParseCertificate(certificates[0])
	if err != nil {
		return nil, &Error{Check: CheckCertificateEncoding, Got: "an AK certificate that does not parse", Err: err}
	}
	san, err := parseSubjectAltName(leaf)
	if err != nil {
		return nil, err
	}
	// crypto/x509 knows no TCG directory name and calls a critical subjectAltName of
	// that form unhandled. It has been handled now.
	leaf.UnhandledCriticalExtensions = slices.DeleteFunc(leaf.UnhandledCriticalExtensions, oid.SubjectAltName.Equal)
	return &presented{leaf: leaf, above: certificates[1:], san: san}, nil
}

// checkValidity checks the leaf's own validity.
func checkValidity(cert *x509.Certificate, now time.Time) error {
	if now.After(cert.NotAfter) {
		return &Error{Check: CheckCertificateExpired, Got: "an end of " + cert.NotAfter.UTC().Format(time.RFC3339),
			Want: "one after " + now.UTC().Format(time.RFC3339)}
	}
	if now.Before(cert.NotBefore) {
		return &Error{Check: CheckCertificateNotYetValid, Got: "a beginning of " + cert.NotBefore.UTC().Format(time.RFC3339),
			Want: "one before " + now.UTC().Format(time.RFC3339)}
	}
	return nil
}

// verify returns the verified chain of p below one of the issuer's roots, leaf
// first.
func (i *issuer) verify(p *presented, now time.Time) ([]*x509.Certificate, error) {
	key := i.parentKey(p)
	i.mu.RLock()
	known := i.parents[key]
	i.mu.RUnlock()
	leaf := p.leaf
	if known != nil && !now.Before(known.notBefore) && !now.After(known.notAfter) {
		chains, err := leaf.Verify(x509.VerifyOptions{Roots: known.pool, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err == nil && len(chains) > 0 {
			return append([]*x509.Certificate{p.leaf}, known.chain...), nil
		}
	}
	return i.verifyWhole(p, key, now)
}

func (i *issuer) verifyWhole(p *presented, key parentKey, now time.Time) ([]*x509.Certificate, error) {
	leaf, pool := p.leaf, i.intermediates
	if len(p.above) > 0 {
		if pool = i.intermediates; i.configured {
			pool = pool.Clone()
		} else {
			pool = x509.NewCertPool()
		}
		above := leaf
		for n, der := range p.above {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				return nil, &Error{Check: CheckCertificateEncoding, Got: "certificate " + strconv.Itoa(n+1) + " of the chain does not parse", Err: err}
			}
			if !bytes.Equal(above.RawIssuer, c.RawSubject) || bytes.Equal(c.RawSubject, c.RawIssuer) {
				return nil, &Error{Check: CheckCertificateOrder, Got: "certificate " + strconv.Itoa(n+1) + ", " + c.Subject.String(),
					Want: "the issuer of the one before it, and no root"}
			}
			pool.AddCert(c)
			above = c
		}
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: i.roots, Intermediates: pool, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, chainError(err, now)
	}
	for _, chain := range chains {
		if usesAll(chain, p.above) {
			i.remember(key, chain[1:])
			return append([]*x509.Certificate{p.leaf}, chain[1:]...), nil
		}
	}
	return nil, &Error{Check: CheckCertificateOrder, Got: "a certificate that the chain does not need", Want: "one chain, leaf first, root left out"}
}

// usesAll reports whether the certificates that were sent are the ones above the
// leaf, in their order.
func usesAll(chain []*x509.Certificate, above [][]byte) bool {
	if len(chain) < len(above)+2 {
		return false
	}
	for n, der := range above {
		if !bytes.Equal(chain[n+1].Raw, der) {
			return false
		}
	}
	return true
}

func (i *issuer) parentKey(p *presented) parentKey {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p.leaf.AuthorityKeyId))))
	h.Write(p.leaf.AuthorityKeyId)
	h.Write(p.leaf.RawIssuer)
	for _, der := range p.above {
		h.Write(der)
	}
	var key parentKey
	h.Sum(key[:0])
	return key
}

// remember keeps the verified certificates above a leaf. It does not keep a root
// (there is nothing to save) nor a chain with name constraints, which look at
// the leaf.
func (i *issuer) remember(key parentKey, chain []*x509.Certificate) {
	if len(chain) < 2 {
		return
	}
	known := &parent{pool: x509.NewCertPool(), chain: chain, notBefore: chain[0].NotBefore, notAfter: chain[0].NotAfter}
	for _, c := range chain {
		if hasNameConstraints(c) {
			return
		}
		if c.NotBefore.After(known.notBefore) {
			known.notBefore = c.NotBefore
		}
		if c.NotAfter.Before(known.notAfter) {
			known.notAfter = c.NotAfter
		}
	}
	known.pool.AddCert(chain[0])
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.parents) >= maxCachedParents {
		for old := range i.parents { // any one: the order of a map is random
			delete(i.parents, old)
			break
		}
	}
	i.parents[key] = known
}

func hasNameConstraints(c *x509.Certificate) bool {
	return len(c.PermittedDNSDomains) > 0 || len(c.ExcludedDNSDomains) > 0 ||
		len(c.PermittedIPRanges) > 0 || len(c.ExcludedIPRanges) > 0 ||
		len(c.PermittedEmailAddresses) > 0 || len(c.ExcludedEmailAddresses) > 0 ||
		len(c.PermittedURIDomains) > 0 || len(c.ExcludedURIDomains) > 0
}

// chainError names what crypto/x509 found. Its reason Expired stands for a
// certificate that is not valid yet, too.
func chainError(err error, now time.Time) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		if now.Before(invalid.Cert.NotBefore) {
			return &Error{Check: CheckCertificateNotYetValid, Got: "a chain before its beginning", Err: err}
		}
		return &Error{Check: CheckCertificateExpired, Got: "a chain past its end", Err: err}
	}
	return &Error{Check: CheckCertificateChain, Got: "a chain that does not verify", Err: err}
}
