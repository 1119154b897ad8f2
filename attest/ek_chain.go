package attest

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"errors"
	"github.com/nodeattest/nodeattest/refusal"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// CheckCertificateSHA1: the chain holds but for a signature over SHA-1, which the
// profile does not let through.
const CheckCertificateSHA1 Check = "certificate-sha1"

const (
	maxChainLength = 8  // certificates, leaf and root counted
	maxLinkChecks  = 32 // signatures looked at in one search
)

// chainSearch builds a chain where crypto/x509 cannot: it refuses SHA-1 and does not
// say which issuer is missing. It checks names, signatures, validity, basic
// constraints, path length, key usage and critical extensions (RFC 5280, 6.1), and
// refuses name constraints, which no vendor's chain has.
type chainSearch struct {
	roots, candidates []*x509.Certificate
	at                time.Time
	anyTime           bool // look at no validity: only to say what is wrong
	checks            int
	sha1              bool // the chain found has a link over SHA-1
	failure           *chainFailure
}

// chainFailure is why no chain was found: of all the dead ends, the one that stands
// highest above the leaf.
type chainFailure struct {
	depth   int
	missing *x509.Certificate // the certificate whose issuer is unknown, or nil
	err     error
}

func (f *chainFailure) refusal() *ekRefusal {
	if f.missing != nil {
		return &ekRefusal{ekNoIssuer, f.err}
	}
	return &ekRefusal{ekBadChain, f.err}
}

func (i *ekIssuer) newSearch(p *presentedEK, at time.Time) *chainSearch {
	s := &chainSearch{roots: i.trusted, candidates: slices.Clone(i.helpers), at: at}
	for n, der := range p.above {
		if n == maxChainLength {
			break
		}
		if c, err := x509.ParseCertificate(der); err == nil {
			s.candidates = append(s.candidates, c)
		}
	}
	return s
}

// run returns the first chain that holds, leaf first and root last.
func (s *chainSearch) run(leaf *x509.Certificate, allowSHA1 bool) ([]*x509.Certificate, *chainFailure) {
	s.checks, s.failure, s.sha1 = 0, nil, false
	chain := s.extend([]*x509.Certificate{leaf}, allowSHA1)
	if chain == nil {
		return nil, s.failure
	}
	for _, c := range chain[:len(chain)-1] {
		s.sha1 = s.sha1 || c.SignatureAlgorithm == x509.SHA1WithRSA
	}
	if !s.sha1 && !s.anyTime {
		return s.confirm(chain)
	}
	return chain, nil
}

// confirm asks crypto/x509 about a chain without SHA-1: it may know a reason against it
// that this search does not.
func (s *chainSearch) confirm(chain []*x509.Certificate) ([]*x509.Certificate, *chainFailure) {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: s.at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	o.Roots.AddCert(chain[len(chain)-1])
	for _, c := range chain[1 : len(chain)-1] {
		o.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(o); err != nil {
		return nil, &chainFailure{depth: len(chain), err: chainError(err, s.at)}
	}
	return chain, nil
}

// fail notes a dead end, if none higher up is known.
func (s *chainSearch) fail(depth int, missing *x509.Certificate, err error) {
	if s.failure == nil || depth > s.failure.depth || depth == s.failure.depth && s.failure.missing != nil && missing == nil {
		s.failure = &chainFailure{depth, missing, err}
	}
}

// extend puts every possible issuer on top of the chain, roots first.
func (s *chainSearch) extend(chain []*x509.Certificate, allowSHA1 bool) []*x509.Certificate {
	top := chain[len(chain)-1]
	s.fail(len(chain), top, &Error{Check: CheckCertificateChain,
		Got:  "a chain that ends at issuer " + refusal.OrNothing(top.Issuer.String()),
		Want: "one of the roots, or an intermediate that leads there"})
	if len(chain) == maxChainLength {
		return nil
	}
	for _, root := range s.roots {
		if s.tryIssuer(chain, root, allowSHA1) {
			return append(chain, root)
		}
	}
	for _, c := range s.candidates {
		if slices.ContainsFunc(chain, c.Equal) || bytes.Equal(c.RawSubject, c.RawIssuer) || !s.tryIssuer(chain, c, allowSHA1) {
			continue
		}
		if found := s.extend(append(slices.Clip(chain), c), allowSHA1); found != nil {
			return found
		}
	}
	return nil
}

// tryIssuer reports whether issuer certified the top of the chain.
func (s *chainSearch) tryIssuer(chain []*x509.Certificate, issuer *x509.Certificate, allowSHA1 bool) bool {
	top := chain[len(chain)-1]
	if !bytes.Equal(top.RawIssuer, issuer.RawSubject) {
		return false
	}
	// An issuer that has been renewed under its name has another key, which the key
	// identifier tells without a signature.
	if len(top.AuthorityKeyId) > 0 && len(issuer.SubjectKeyId) > 0 && !bytes.Equal(top.AuthorityKeyId, issuer.SubjectKeyId) {
		return false
	}
	if key, ok := issuer.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxIssuerRSABits {
		s.fail(len(chain), nil, &Error{Check: CheckWeakKey, Got: "a CA with an RSA key of " + strconv.Itoa(key.N.BitLen()) + " bits",
			Want: "at most " + strconv.Itoa(maxIssuerRSABits)})
		return false
	}
	if s.checks++; s.checks > maxLinkChecks {
		s.fail(len(chain), nil, &Error{Check: CheckCertificateChain, Got: "too many certificates of one name", Want: "one chain"})
		return false
	}
	if err := s.checkCA(issuer, len(chain)-1, slices.ContainsFunc(s.roots, issuer.Equal)); err != nil {
		s.fail(len(chain), nil, err)
		return false
	}
	if err := checkLink(top, issuer, allowSHA1); err != nil {
		s.fail(len(chain), nil, err)
		return false
	}
	return true
}

// checkCA checks that a certificate may stand above so many intermediates. A root may
// be of version 1, without extensions.
func (s *chainSearch) checkCA(c *x509.Certificate, below int, root bool) error {
	bad := func(got string) error {
		return &Error{Check: CheckCertificateChain, Got: got + " in CA certificate " + refusal.OrNothing(c.Subject.String()), Want: "that of a CA"}
	}
	if !s.anyTime {
		if err := checkValidity(c, s.at); err != nil {
			return inCertificate(c, err)
		}
	}
	switch {
	case (c.Version == 3 || !root) && (!c.BasicConstraintsValid || !c.IsCA):
		return bad("no basic constraints of a CA")
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return bad(keyUsageText(c.KeyUsage))
	case c.BasicConstraintsValid && (c.MaxPathLen > 0 || c.MaxPathLenZero) && below > c.MaxPathLen:
		return bad("a path length that is too short")
	case hasExtension(c, oid.NameConstraints):
		return bad("name constraints, which are not looked at here,")
	case len(c.UnhandledCriticalExtensions) > 0:
		return bad("critical extension " + c.UnhandledCriticalExtensions[0].String())
	}
	return nil
}

// inCertificate says which certificate an error is about.
func inCertificate(c *x509.Certificate, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Check: e.Check, Got: e.Got + " of CA certificate " + refusal.OrNothing(c.Subject.String()), Want: e.Want}
	}
	return err
}

// checkLink checks one signature.
func checkLink(cert, issuer *x509.Certificate, allowSHA1 bool) error {
	if cert.SignatureAlgorithm == x509.SHA1WithRSA {
		if err := checkSHA1Link(cert, issuer); err != nil {
			return badLink(cert, issuer, err)
		}
		if !allowSHA1 {
			return &Error{Check: CheckCertificateSHA1,
				Got:  "a signature over SHA-1 by " + refusal.OrNothing(issuer.Subject.String()),
				Want: "SHA-256 or more, or the tolerance InsecureAllowSHA1Links"}
		}
		return nil
	}
	if err := issuer.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature); err != nil {
		return badLink(cert, issuer, err)
	}
	return nil
}

func badLink(cert, issuer *x509.Certificate, err error) error {
	return &Error{Check: CheckCertificateChain, Got: "a signature by " + refusal.OrNothing(issuer.Subject.String()) +
		" that does not verify on certificate " + refusal.OrNothing(cert.Subject.String()), Want: "one that does", Err: err}
}

var errNoRSAKey = errors.New("the issuer has no RSA key")

// checkSHA1Link verifies a signature that crypto/x509 refuses to look at. The two
// algorithm identifiers have been compared by crypto/x509's parser.
func checkSHA1Link(cert, issuer *x509.Certificate) error {
	key, err := rsaKeyOf(issuer)
	if err != nil {
		return err
	}
	sum := sha1.Sum(cert.RawTBSCertificate)
	return rsa.VerifyPKCS1v15(key, crypto.SHA1, sum[:], cert.Signature)
}

// rsaKeyOf is the certificate's RSA key, also of a CA whose SubjectPublicKeyInfo says
// RSAES-OAEP.
func rsaKeyOf(c *x509.Certificate) (*rsa.PublicKey, error) {
	if key, ok := c.PublicKey.(*rsa.PublicKey); ok {
		return key, nil
	}
	if key, err := oaepKey(c.RawSubjectPublicKeyInfo); err == nil {
		return key, nil
	}
	return nil, errNoRSAKey
}

// maxNVChain bounds what the NV indexes of an EK chain may hold, in bytes.
const maxNVChain = 64 << 10

// CheckEKChainEncoding: what stands in the NV indexes of the EK chain is no sequence
// of certificates.
const CheckEKChainEncoding Check = "ek-chain-encoding"

// ParseEKChain reads the EK's CA certificates as they stand in the NV indexes
// 0x01C00100 to 0x01C001FF (TCG EK Credential Profile 2.6, section 2.2.1.5): DER, one
// behind the other, in one index or spread over several that are given here in their
// order. Padding with 0x00 or 0xff behind the last certificate of an index is left
// out. It trusts nothing, and refuses with an [*Error] and [CheckEKChainEncoding] or
// [CheckSize] (over 64 KiB).
func ParseEKChain(indexes [][]byte) ([]*x509.Certificate, error) {
	size := 0
	for _, content := range indexes {
		size += len(content)
	}
	if size > maxNVChain {
		return nil, &Error{Check: CheckSize, Got: "an EK chain of more than 64 KiB", Want: "at most that"}
	}
	// A certificate that goes on in the next index leaves no room for padding.
	if certs, err := parseEach(indexes); err == nil {
		return certs, nil
	}
	return parseConcatenated(bytes.Join(indexes, nil))
}

func parseEach(indexes [][]byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for _, content := range indexes {
		certs, err := parseConcatenated(content)
		if err != nil {
			return nil, err
		}
		all = append(all, certs...)
	}
	return all, nil
}

func parseConcatenated(content []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	rest := cryptobyte.String(content)
	for !rest.Empty() && checkPadding(rest) != nil {
		var der cryptobyte.String
		if !rest.ReadASN1Element(&der, asn1.SEQUENCE) {
			return nil, &Error{Check: CheckEKChainEncoding, Got: "bytes that are neither a certificate nor padding", Want: "certificates in DER"}
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, &Error{Check: CheckEKChainEncoding, Got: "a certificate that does not parse", Err: err}
		}
		certs = append(certs, c)
	}
	return certs, nil
}

// chainAbove picks from certs those that stand above the leaf, in the order in which a
// node sends them: the leaf's issuer first, the root left out. It goes by names and
// key identifiers alone; the control plane verifies.
func chainAbove(leaf *x509.Certificate, certs []*x509.Certificate) [][]byte {
	var above [][]byte
	top := leaf
	for len(above) < maxChainLength {
		n := slices.IndexFunc(certs, func(c *x509.Certificate) bool {
			return bytes.Equal(top.RawIssuer, c.RawSubject) && !bytes.Equal(c.RawSubject, c.RawIssuer) &&
				(len(top.AuthorityKeyId) == 0 || len(c.SubjectKeyId) == 0 || bytes.Equal(top.AuthorityKeyId, c.SubjectKeyId)) &&
				!slices.ContainsFunc(above, func(der []byte) bool { return bytes.Equal(der, c.Raw) })
		})
		if n < 0 {
			return above
		}
		top = certs[n]
		above = append(above, top.Raw)
	}
	return above
}
