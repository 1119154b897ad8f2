package tpmcert

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
)

// AKVerifier decides which AK certificates are trusted. It is made once and is safe for
// concurrent use by multiple goroutines. It remembers which certificate signatures it has
// verified.
type AKVerifier struct {
	issuers []*issuer
}

// NewAKVerifier makes a verifier that trusts these issuers, tried in order. There must be at
// least one. The error matches [refusal.CheckConfig] and names the issuer.
func NewAKVerifier(issuers []Issuer) (*AKVerifier, error) {
	if len(issuers) == 0 {
		return nil, refusal.Config("Issuers", "", "at least one")
	}
	if err := checkScopes(issuers); err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "unusable Issuers", Err: err}
	}
	v, known := &AKVerifier{}, newLinkMemory()
	for n := range issuers {
		i, err := newIssuer(&issuers[n], known)
		if err != nil {
			return nil, unusable("issuer", n, err)
		}
		v.issuers = append(v.issuers, i)
	}
	return v, nil
}

// Profiles returns the profiles of the issuers, in their order.
func (v *AKVerifier) Profiles() []Profile {
	var all []Profile
	for _, i := range v.issuers {
		all = append(all, i.profile.clone())
	}
	return all
}

// AKCertificate is the content of a verified AK certificate.
type AKCertificate struct {
	// Key is the AK, an *rsa.PublicKey or an *ecdsa.PublicKey.
	Key crypto.PublicKey
	// Chain is the verified chain, the AK certificate first and the root last.
	Chain []*x509.Certificate
	// Machine is the machine's identity, in the form that the profile looks for.
	Machine attest.Identity
	// Directory is the manufacturer, model and version of the TPM, where the certificate
	// states them. It is never an identity.
	Directory DirectoryName
	// Profile is the profile of the issuer under which the certificate is valid. It is up to
	// the caller to grant its tolerances: for example, InsecureAllowSHA1Signature to a
	// statement by this AK.
	Profile Profile
}

// AKPresented is the certificate of an AK and the chain sent with it, parsed but not trusted.
type AKPresented struct {
	sentChain
}

// ParseAKPresented parses an AK certificate and the chain that came with it, in DER, leaf
// first and without the root: 1 to 8 certificates of at most 16 KiB each. A refusal is a
// [*refusal.Error].
func ParseAKPresented(certificates [][]byte) (*AKPresented, error) {
	if len(certificates) == 0 {
		return nil, checkCertificateMissing.Refuse("", "an AK certificate")
	}
	if err := checkNumber(certificates); err != nil {
		return nil, err
	}
	leaf, err := parseLeaf(certificates[0], "an AK certificate")
	if err != nil {
		return nil, err
	}
	spki, _ := canonicalSPKI(leaf.Certificate, leaf.PublicKey)
	return &AKPresented{sentChain: sentChain{spki: spki, leaf: leaf, above: certificates[1:]}}, nil
}

// Leaf returns the AK's certificate.
func (p *AKPresented) Leaf() *x509.Certificate { return p.leaf.Certificate }

// Verify finds the issuer under which the certificate is valid at the time now. An issuer
// whose roots do not match is passed over; one whose roots match but whose profile does not
// determines the error. budget counts the signatures; if it is nil, Verify uses one of its
// own.
//
// A refusal is a [*refusal.Error] with the check that failed; once the context has ended, the
// error wraps [refusal.ErrRetry].
func (v *AKVerifier) Verify(ctx context.Context, p *AKPresented, now time.Time, budget *attest.Budget) (*AKCertificate, error) {
	switch {
	case ctx == nil:
		return nil, errors.New("tpmcert: the context is nil")
	case v == nil || len(v.issuers) == 0:
		return nil, errNotMade
	case p == nil || p.leaf == nil:
		return nil, checkCertificateMissing.Refuse("", "an AK certificate")
	case now.IsZero():
		return nil, errors.New("AK certificate: no time")
	}
	return v.verify(ctx, newLinks(budget), p, now)
}

func (v *AKVerifier) verify(ctx context.Context, w *links, p *AKPresented, now time.Time) (*AKCertificate, error) {
	if err := checkValidity(p.Leaf(), now); err != nil {
		return nil, err
	}
	above, err := p.path(ctx, w, v.issuers[0].known)
	if err != nil {
		return nil, err
	}
	var chainErr, profileErr error
	for _, i := range v.issuers {
		search := chainSearch{anchors: i.anchors, work: w, at: now, usages: i.profile.usagesOf(p.Leaf())}
		chain, failure := search.run(ctx, p.leaf, above)
		if err := ctx.Err(); err != nil {
			return nil, refusal.Retry(fmt.Errorf("stopped between two issuers: %w", err))
		}
		if failure != nil {
			if chainErr == nil || errors.Is(chainErr, CheckCertificateChain) {
				chainErr = failure.err // an out-of-date chain tells more than an unknown one
			}
			continue
		}
		if err := i.profile.check(p.Leaf(), p.leaf.san); err != nil {
			profileErr = cmp.Or(profileErr, err)
			continue
		}
		machine, err := p.identity(&i.profile)
		if err != nil {
			return nil, err
		}
		return &AKCertificate{Key: p.leaf.PublicKey, Chain: plain(chain), Machine: machine,
			Directory: p.leaf.san.directory, Profile: i.profile}, nil
	}
	return nil, cmp.Or(profileErr, chainErr)
}

// identify asks one source. The subjectAltName has been parsed already.
func (p *AKPresented) identify(s IdentitySource, inDirectory bool) (attest.Identity, error) {
	if s, ok := s.(sanSource); ok {
		return s.find(p.leaf.san, inDirectory)
	}
	return s.Identify(p.Leaf())
}

// identity asks the profile's sources in order.
func (p *AKPresented) identity(profile *Profile) (attest.Identity, error) {
	for _, s := range profile.Identity {
		id, err := p.identify(s, profile.InsecureAllowDirectoryName)
		_, own := errors.AsType[refusal.Check](err)
		switch kind := id.Kind(); {
		case own:
			return "", err
		case err != nil:
			return "", &refusal.Error{Check: attest.CheckIdentity, Got: "a certificate that the source of identities refuses", Err: err}
		case id == "":
			continue
		case kind == "" || kind != s.Kind() || len(id) <= len(kind)+1:
			return "", attest.CheckIdentity.Refuse(string(id), "a kind, a colon and a name")
		}
		return id, nil
	}
	return "", attest.CheckIdentity.Refuse("none of the forms of profile "+profile.Name, "a machine identity")
}

// VerifyAKCertificate checks an AK certificate and the chain that came with it, in DER, leaf
// first and without the root, against a list of trusted issuers at the time now. It is meant
// for evidence from outside the join, together with [statement.VerifyCertify]. The issuers
// are prepared on each call and nothing is remembered: to serve many requests, make an
// [AKVerifier].
//
// A refusal is a [*refusal.Error] with the check that failed. An issuer without roots or with an
// incomplete profile, or an empty list, is an error with [refusal.CheckConfig].
func VerifyAKCertificate(issuers []Issuer, certificates [][]byte, now time.Time) (*AKCertificate, error) {
	v, err := NewAKVerifier(issuers)
	if err != nil {
		return nil, err
	}
	p, err := ParseAKPresented(certificates)
	if err != nil {
		return nil, err
	}
	if err := statement.CheckKeyStrength(p.leaf.PublicKey); err != nil {
		return nil, err
	}
	return v.Verify(context.Background(), p, now, nil)
}
