package tpmcert

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Issuer is one issuer of AK certificates that the control plane trusts.
type Issuer struct {
	// Roots are the trust anchors, at least one; they need not be self-signed. Nothing else is
	// trusted: the system's roots never are.
	Roots []*x509.Certificate
	// Intermediates are certificates that the node need not send. They are not
	// trusted by themselves.
	Intermediates []*x509.Certificate
	// Profile describes the issuer's AK certificates.
	Profile Profile
}

// Checks of a certificate chain.
const (
	// CheckCertificateEncoding: a certificate does not parse.
	CheckCertificateEncoding refusal.Check = "certificate-encoding"
	// checkCertificateMissing: the evidence has no AK certificate.
	checkCertificateMissing refusal.Check = "certificate-missing"
	// checkCertificateOrder: the certificates are not one chain, leaf first and without the
	// root.
	checkCertificateOrder refusal.Check = "certificate-order"
	// checkCertificateExpired: the AK certificate or one above it has expired.
	checkCertificateExpired refusal.Check = "certificate-expired"
	// checkCertificateNotYetValid: the AK certificate or one above it is not valid yet.
	checkCertificateNotYetValid refusal.Check = "certificate-not-yet-valid"
	// CheckCertificateChain: the chain does not end at a root of any issuer, or a signature
	// or a constraint in it fails.
	CheckCertificateChain refusal.Check = "certificate-chain"
)

// issuer is an Issuer prepared for use.
type issuer struct {
	profile Profile
	*anchors
}

// anchors are the roots and intermediates of an issuer by [dn.Key] of the subject, with the memory of
// verified signatures, which is shared by all issuers of a verifier.
type anchors struct {
	roots, intermediates map[string][]*certificate
	known                *linkMemory
}

func newIssuer(i *Issuer, known *linkMemory) (*issuer, error) {
	a, err := newAnchors(i.Roots, i.Intermediates, known)
	if err = cmp.Or(checkProfile(&i.Profile), err); err != nil {
		return nil, err
	}
	return &issuer{profile: i.Profile.clone(), anchors: a}, nil
}

func newAnchors(roots, intermediates []*x509.Certificate, known *linkMemory) (*anchors, error) {
	switch {
	case len(roots) == 0:
		return nil, errors.New("no roots")
	case slices.Contains(roots, nil):
		return nil, errors.New("a nil certificate among Roots")
	case slices.Contains(intermediates, nil):
		return nil, errors.New("a nil certificate among Intermediates")
	}
	return &anchors{roots: bySubject(roots, true), intermediates: bySubject(intermediates, false), known: known}, nil
}

func bySubject(cas []*x509.Certificate, root bool) map[string][]*certificate {
	out := map[string][]*certificate{}
	for _, c := range cas {
		ca := caOf(c, root)
		out[ca.subject] = append(out[ca.subject], ca)
	}
	return out
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
	case slices.Contains(p.Identity, nil):
		return fmt.Errorf("profile %s has a nil source of the machine's identity", p.Name)
	}
	ids := slices.Concat(p.ExtKeyUsage, p.Extensions, p.Policies)
	for _, s := range p.Identity {
		if s, ok := s.(scoped); ok {
			ids = append(ids, s.scope().Types...)
		}
	}
	return checkIDs(p.Name, ids, p.Projects)
}

// checkIDs refuses object identifiers and project IDs that no certificate can have, such as the dotted
// form of an identifier that was converted and not parsed, or the number of a project.
func checkIDs(profile string, ids []oid.OID, projects []string) error {
	for _, id := range ids {
		if !id.Valid() {
			return fmt.Errorf("profile %s names %q, want an object identifier, as oid.Parse returns it", profile, string(id))
		}
	}
	for _, project := range projects {
		if !isGCE(project + "/1") {
			return fmt.Errorf("profile %s names the project %q, want the ID of one, and not its number", profile, project)
		}
	}
	return nil
}

// sentChain is a leaf with the certificates that came with it in the evidence: the leaf
// parsed, the rest not.
type sentChain struct {
	spki  []byte // canonical, of the leaf's key; nil if it has none
	leaf  *certificate
	above [][]byte
}

// SPKI returns the result of [csr.CanonicalSPKI] for the key that was presented, or nil if it
// refuses keys of that kind. The result must not be changed.
func (p *sentChain) SPKI() []byte { return p.spki }

// checkNumber refuses more certificates, or larger ones, than a bundle can hold.
func checkNumber(certificates [][]byte) error {
	if len(certificates) > der.MaxCertificates {
		return tooLarge(len(certificates), "certificates", der.MaxCertificates)
	}
	for _, c := range certificates {
		if len(c) > der.MaxCertificateSize {
			return tooLarge(len(c), "bytes of certificate", der.MaxCertificateSize)
		}
	}
	return nil
}

// path returns the certificates above the leaf, parsed, if there is one path to try: each certificate is the
// issuer of the one before it, and no name occurs twice. It refuses critical extensions of the leaf that are
// not understood; the subjectAltName was removed from the list when it was parsed.
func (p *sentChain) path(ctx context.Context, w *links, known *linkMemory) ([]*certificate, error) {
	if unknown := p.leaf.UnhandledCriticalExtensions; len(unknown) > 0 {
		return nil, checkCertificateExtension.Refuse("critical extension "+unknown[0].String(),
			"critical extensions that are understood")
	}
	if err := w.Work(ctx, p.leaf.work); err != nil {
		return nil, err
	}
	parsed := make([]*certificate, 0, len(p.above))
	below := p.leaf
	for n, der := range p.above {
		number := "certificate " + strconv.Itoa(n+1) + " of the chain"
		c, work := known.find(der).cert, len(der)
		if c == nil {
			read, err := parseCertificate(der, number)
			if err != nil {
				return nil, err
			}
			c, work = read.asCA(false), read.work
		}
		if err := w.Work(ctx, work); err != nil {
			return nil, err
		}
		if below.issuer != c.subject || c.subject == c.issuer || slices.ContainsFunc(parsed, c.sameSubject) {
			return nil, checkCertificateOrder.Refuse(number+", "+nameText(c.Subject),
				"the issuer of the one before it, no root, and no name twice")
		}
		parsed = append(parsed, c)
		below = c
	}
	return parsed, nil
}

// checkValidity checks a certificate's own validity.
func checkValidity(cert *x509.Certificate, now time.Time) error {
	if now.After(cert.NotAfter) {
		return checkCertificateExpired.Refuse("an end of "+cert.NotAfter.UTC().Format(time.RFC3339),
			"one after "+now.UTC().Format(time.RFC3339))
	}
	if now.Before(cert.NotBefore) {
		return checkCertificateNotYetValid.Refuse("a beginning of "+cert.NotBefore.UTC().Format(time.RFC3339),
			"one before "+now.UTC().Format(time.RFC3339))
	}
	return nil
}

// usagesOf returns the usages of an AK's certificate under the profile: the CAs above it must
// be allowed to certify for one of them. A certificate without any counts as an AK's.
func (p *Profile) usagesOf(cert *x509.Certificate) []oid.OID {
	allowed := p.ExtKeyUsage
	if len(allowed) == 0 {
		allowed = []oid.OID{oid.TCGKpAIKCertificate}
	}
	ids, _ := extKeyUsages(cert)
	counting := countingUsages(allowed, ids)
	both := slices.DeleteFunc(ids, func(id oid.OID) bool { return !slices.Contains(counting, id) })
	if len(both) == 0 {
		return allowed // the profile refuses it, if it has any
	}
	return both
}
