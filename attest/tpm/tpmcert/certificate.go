package tpmcert

import (
	"cmp"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkCertificateSHA1: a certificate of the chain is signed over SHA-1, which the profile
// does not allow.
const checkCertificateSHA1 refusal.Check = "certificate-sha1"

// certificate is a certificate of a chain, with everything known about it that depends
// neither on signatures nor on the time. It is immutable.
type certificate struct {
	*x509.Certificate
	subject, issuer string          // dn.Key of the names
	work            int             // what reading it counted for, where a node has sent it
	san             *subjectAltName // only of a machine's

	// The fields below are set only for CAs.
	key    crypto.PublicKey
	unfit  error     // why it can certify nothing, or nil
	usages []oid.OID // the only ones it may certify for; nil means all
	// constrained says that it has constraints that must be left to crypto/x509.
	constrained bool
}

// Limits on a certificate that a node sends. Of 800 real ones, of machines and of their
// CAs, the largest have 175 elements, names of 194 bytes and three extended key usages.
const (
	maxElements = 256
	maxNameSize = 1024 // bytes of subject or issuer
	maxUsages   = 32   // extended key usages, and certificate policies or mappings of some
)

// parseCertificate parses a certificate that a node sends, or that a fetcher found. What can
// repeat in one is bounded first: crypto/x509 makes up to a hundred bytes of each.
func parseCertificate(data []byte, what string) (*certificate, error) {
	elements, err := der.CountElements(what, data, maxElements)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(data)
	if err != nil {
		return nil, &refusal.Error{Check: CheckCertificateEncoding, Got: what + " that does not parse", Err: err}
	}
	if size := max(len(c.RawSubject), len(c.RawIssuer)); size > maxNameSize {
		return nil, tooLarge(size, "bytes of name in "+what, maxNameSize)
	}
	if n := max(len(c.Policies), len(c.PolicyMappings)); n > maxUsages {
		return nil, tooLarge(n, "policies in "+what, maxUsages)
	}
	return &certificate{Certificate: c, subject: dn.Key(c.RawSubject), issuer: dn.Key(c.RawIssuer), work: len(data) + elements*elementWork}, nil
}

// parseLeaf parses a machine's certificate, with its subjectAltName. crypto/x509 does not
// support TCG directory names, and reports a critical subjectAltName of that form as
// unhandled; it has been handled by now.
func parseLeaf(data []byte, what string) (*certificate, error) {
	c, err := parseCertificate(data, what)
	if err != nil {
		return nil, err
	}
	c.UnhandledCriticalExtensions = slices.DeleteFunc(c.UnhandledCriticalExtensions, oid.SubjectAltName.Equal)
	c.san, err = parseSubjectAltName(c.Certificate)
	return c, err
}

// caOf returns c as a certificate above others.
func caOf(c *x509.Certificate, root bool) *certificate {
	return (&certificate{Certificate: c, subject: dn.Key(c.RawSubject), issuer: dn.Key(c.RawIssuer)}).asCA(root)
}

// asCA fills in the fields of a certificate above others, and returns c. It changes c, so no other goroutine may use c yet.
func (c *certificate) asCA(root bool) *certificate {
	c.key = keyOf(c.Certificate)
	c.constrained = slices.ContainsFunc(c.Extensions, looksAtLeaves)
	c.unfit = cmp.Or(statement.CheckKeyStrength(c.key), checkCA(c.Certificate, root))
	// As in TLS, a CA may certify for the extended key usages that it has itself.
	usages, ok := extKeyUsages(c.Certificate)
	if !ok {
		c.unfit = cmp.Or(c.unfit, checkCertificateExtKeyUsage.Refuse("a bad extension", "that of a CA"))
	}
	if !slices.Contains(usages, oid.AnyExtendedKeyUsage) {
		c.usages = usages
	}
	c.unfit = inCertificate(c.Certificate, c.unfit)
	return c
}

// keyOf returns the certificate's key, even for a CA whose SubjectPublicKeyInfo says
// RSAES-OAEP, as the TPM 1.2 profile required for EKs: crypto/x509 does not read that. It
// returns nil for a key of another kind.
func keyOf(c *x509.Certificate) crypto.PublicKey {
	if c.PublicKey == nil {
		if key, err := oaepKey(c.RawSubjectPublicKeyInfo); err == nil {
			return key
		}
	}
	return c.PublicKey
}

// canonicalSPKI is [csr.CanonicalSPKI] of a certificate's key, without encoding it again if it is
// canonical.
func canonicalSPKI(c *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	if csr.IsCanonicalSPKI(c.RawSubjectPublicKeyInfo) {
		return c.RawSubjectPublicKeyInfo, nil
	}
	return csr.CanonicalSPKI(key)
}

// checkCA checks the constraints and key usage of a CA's certificate (RFC 5280, 4.2.1.3, 4.2.1.9). A
// root may be of version 1, without extensions.
func checkCA(c *x509.Certificate, root bool) error {
	got := ""
	switch {
	case (c.Version == 3 || !root) && (!c.BasicConstraintsValid || !c.IsCA):
		got = "no basic constraints of a CA"
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		got = keyUsageText(c.KeyUsage)
	case len(c.UnhandledCriticalExtensions) > 0:
		got = "critical extension " + c.UnhandledCriticalExtensions[0].String()
	default:
		return nil
	}
	return CheckCertificateChain.Refuse(got, "that of a CA")
}

// looksAtLeaves reports whether an extension of a CA certificate can be satisfied by one leaf
// and not by another: nameConstraints, policyMappings, policyConstraints and inhibitAnyPolicy
// (RFC 5280, section 4.2.1).
func looksAtLeaves(e pkix.Extension) bool {
	id := e.Id
	return len(id) == 4 && id[0] == 2 && id[1] == 5 && id[2] == 29 && (id[3] == 30 || id[3] == 33 || id[3] == 36 || id[3] == 54)
}

// inCertificate adds to an error which certificate it is about.
func inCertificate(c *x509.Certificate, err error) error {
	if e, ok := errors.AsType[*refusal.Error](err); ok {
		return e.Check.Refuse(e.Got+" in CA certificate "+nameText(c.Subject), e.Want)
	}
	return err
}

// checkLinkForm checks everything about a link that needs no public-key operation: the hash,
// and that the issuer's key is of the kind that makes such signatures.
func checkLinkForm(cert, issuer *certificate, allowSHA1 bool, sha1Tolerance string) error {
	_, isRSA := issuer.key.(*rsa.PublicKey)
	wantRSA := true
	switch cert.SignatureAlgorithm {
	case x509.SHA1WithRSA:
	case x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA, x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS:
		if issuer.PublicKey == nil {
			return badLink(cert, issuer, errors.New("the issuer's key is for RSAES-OAEP"))
		}
	case x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512:
		wantRSA = false
	default:
		return badLink(cert, issuer, errors.New("the algorithm is not accepted"))
	}
	switch {
	case isRSA != wantRSA:
		return badLink(cert, issuer, errors.New("the issuer's key is of another kind than the signature"))
	case cert.SignatureAlgorithm == x509.SHA1WithRSA && !allowSHA1:
		return checkCertificateSHA1.Refuse("a signature over SHA-1 by "+nameText(issuer.Subject),
			"SHA-256 or more"+sha1Tolerance)
	}
	return nil
}

// checkLink checks the signature of a link whose form has been checked. It is the only place
// where certificate signatures are verified. The parser of crypto/x509 has compared the two
// algorithm identifiers.
func checkLink(cert, issuer *certificate) error {
	signer := x509.Certificate{PublicKey: issuer.key} // crypto/x509 has no key for a CA whose SubjectPublicKeyInfo says RSAES-OAEP
	return badLink(cert, issuer, signer.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature))
}

func badLink(cert, issuer *certificate, err error) error {
	if err == nil {
		return nil
	}
	return &refusal.Error{Check: CheckCertificateChain, Got: "a signature by " + nameText(issuer.Subject) +
		" that does not verify on certificate " + nameText(cert.Subject), Want: "one that does", Err: err}
}

// maxNameText is how many attributes of a name an error shows.
const maxNameText = 16

// nameText formats a distinguished name for an error. pkix.Name.String takes time and memory
// that grow with the square of the attributes.
func nameText(n pkix.Name) string {
	var parts []string
	for _, a := range slices.Backward(n.Names[:min(len(n.Names), maxNameText)]) {
		parts = append(parts, pkix.RDNSequence{{a}}.String())
	}
	return cmp.Or(strings.Join(parts, ","), "(no name)")
}
