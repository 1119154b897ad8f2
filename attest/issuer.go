package attest

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
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

// issuer is an Issuer made ready.
type issuer struct {
	profile Profile
	*anchors
}

// anchors are the roots and intermediates of an issuer, with the memory of verified
// intermediates.
type anchors struct {
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
	if err := checkProfile(&i.Profile); err != nil {
		return nil, err
	}
	a, err := newAnchors(i.Roots, i.Intermediates)
	if err != nil {
		return nil, err
	}
	return &issuer{profile: i.Profile.clone(), anchors: a}, nil
}

func newAnchors(roots, intermediates []*x509.Certificate) (*anchors, error) {
	if len(roots) == 0 {
		return nil, errors.New("no roots")
	}
	out := &anchors{roots: x509.NewCertPool(), intermediates: x509.NewCertPool(), parents: map[parentKey]*parent{}}
	for _, c := range roots {
		if c == nil {
			return nil, errors.New("a nil root")
		}
		out.roots.AddCert(c)
	}
	for _, c := range intermediates {
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

	parsed []*x509.Certificate // above, once it has been needed
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

// maxIssuerRSABits bounds the RSA keys that stand above a leaf: whoever sends a
// chain chooses what its verification costs.
const maxIssuerRSABits = 8192

// parseAbove reads what stands above the leaf, once, and leaves crypto/x509 one path
// to try: each certificate is the issuer of the one before it, and no name occurs
// twice.
func (p *presented) parseAbove() ([]*x509.Certificate, error) {
	if p.parsed != nil {
		return p.parsed, nil
	}
	parsed := make([]*x509.Certificate, 0, len(p.above))
	below := p.leaf
	for n, der := range p.above {
		number := "certificate " + strconv.Itoa(n+1) + " of the chain"
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, &Error{Check: CheckCertificateEncoding, Got: number + " does not parse", Err: err}
		}
		again := func(other *x509.Certificate) bool { return bytes.Equal(other.RawSubject, c.RawSubject) }
		if !bytes.Equal(below.RawIssuer, c.RawSubject) || bytes.Equal(c.RawSubject, c.RawIssuer) || slices.ContainsFunc(parsed, again) {
			return nil, &Error{Check: CheckCertificateOrder, Got: number + ", " + c.Subject.String(),
				Want: "the issuer of the one before it, no root, and no name twice"}
		}
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxIssuerRSABits {
			return nil, &Error{Check: CheckWeakKey, Got: number + ": RSA of " + strconv.Itoa(key.N.BitLen()) + " bits",
				Want: "at most " + strconv.Itoa(maxIssuerRSABits)}
		}
		parsed = append(parsed, c)
		below = c
	}
	p.parsed = parsed
	return parsed, nil
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
func (i *anchors) verify(p *presented, now time.Time) ([]*x509.Certificate, error) {
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

func (i *anchors) verifyWhole(p *presented, key parentKey, now time.Time) ([]*x509.Certificate, error) {
	above, err := p.parseAbove()
	if err != nil {
		return nil, err
	}
	pool := i.intermediates
	if len(above) > 0 {
		if i.configured {
			pool = pool.Clone()
		} else {
			pool = x509.NewCertPool()
		}
		for _, c := range above {
			pool.AddCert(c)
		}
	}
	chains, err := p.leaf.Verify(x509.VerifyOptions{Roots: i.roots, Intermediates: pool, CurrentTime: now,
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

func (i *anchors) parentKey(p *presented) parentKey {
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
// (there is nothing to save) nor a chain with constraints that look at the leaf.
func (i *anchors) remember(key parentKey, chain []*x509.Certificate) {
	if len(chain) < 2 {
		return
	}
	known := &parent{pool: x509.NewCertPool(), chain: chain, notBefore: chain[0].NotBefore, notAfter: chain[0].NotAfter}
	for _, c := range chain {
		if slices.ContainsFunc(c.Extensions, looksAtLeaves) {
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

// looksAtLeaves reports whether an extension of a CA certificate can hold for one
// leaf and not for another: nameConstraints, policyMappings, policyConstraints and
// inhibitAnyPolicy (RFC 5280, section 4.2.1).
func looksAtLeaves(e pkix.Extension) bool {
	id := e.Id
	return len(id) == 4 && id[0] == 2 && id[1] == 5 && id[2] == 29 && (id[3] == 30 || id[3] == 33 || id[3] == 36 || id[3] == 54)
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
