package tpmcert

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// EKIssuer is one issuer of EK certificates that the control plane trusts, usually a TPM
// vendor. A vendor's root admits every TPM that the vendor ever made, so this never amounts
// to acceptance: that takes an [attest.Authorizer].
type EKIssuer struct {
	// Roots are the trust anchors, at least one; they need not be self-signed. The system's
	// roots are never used.
	Roots []*x509.Certificate
	// Intermediates are certificates that the node need not send. They are not
	// trusted by themselves.
	Intermediates []*x509.Certificate
	// Profile describes the issuer's EK certificates.
	Profile EKProfile
	// CRLs are the issuer's revocation lists, nil without any; while the store is empty, nothing
	// under Roots is decided. A certificate revoked by a list of any issuer is refused under every
	// issuer, and everything below a CA that has lists but none that can be used is the check
	// "certificate-revocation-unknown". A list that Roots and Intermediates show to be unusable is
	// an error of [NewEKVerifier]: one not signed by the CA that it names, over SHA-1 without
	// InsecureAllowSHA1Links, of a CA without cRLSign, or signed by one of them under another name.
	CRLs *CRLStore
	// RequireCRL refuses a certificate in a chain to one of Roots, except the root itself, if
	// there is no current list for it.
	RequireCRL bool
	// Fetcher fetches issuer certificates that neither the node nor Intermediates have. If
	// nil, as is usual, nothing is fetched.
	Fetcher IssuerFetcher
}

// EKVerifierConfig says which EKs are trusted. At least one of Issuers, Allowed and
// Platform must be given.
type EKVerifierConfig struct {
	// Issuers are tried in order, for an EK that comes with a certificate.
	Issuers []EKIssuer
	// Allowed are EKs that are trusted without a chain, each as
	// ek:sha256:<64 hex digits> of the canonical SubjectPublicKeyInfo.
	Allowed []attest.Identity
	// Platform is asked for the EKs of the machine if neither of these vouches for the EK.
	Platform PlatformEK
	// Denied are TPMs that are refused, no matter who vouches for them. They are judged by
	// their certificates, so this requires Issuers.
	Denied []DeniedTPM
	// InsecureAllowUnjudged admits EKs that only Allowed or Platform vouches for, even though
	// Denied or CRLs are set. Both of those judge certificates, so anyone who leaves out the
	// certificate of a revoked or denied EK, or sends a self-made one, gets past both.
	// Without this field, such an EK must come with a certificate that is valid under one of
	// Issuers.
	InsecureAllowUnjudged bool
}

// PlatformEK is an infrastructure's own statement of the EKs of its machines: AWS
// (GetInstanceTpmEkPub), vCenter (the virtual TPM's endorsement key certificates), Compute
// Engine (getShieldedInstanceIdentity).
type PlatformEK interface {
	// EndorsementKeys returns the EKs that the platform states for the machine, each an
	// *rsa.PublicKey or *ecdsa.PublicKey, or none if it does not know the machine. The machine is
	// the policy's for the node's name; the platform's own name for it is in its provider ID. After
	// an error the request will be retried. It is called from multiple goroutines.
	EndorsementKeys(ctx context.Context, machine *csr.Machine) ([]crypto.PublicKey, error)
}

// EKSource says what made an EK trusted.
type EKSource string

const (
	// EKFromCertificate: its certificate chains to an issuer's root.
	EKFromCertificate EKSource = "certificate"
	// EKFromAllowList: it is one of EKVerifierConfig.Allowed.
	EKFromAllowList EKSource = "allow-list"
	// EKFromPlatform: the platform states it for the machine.
	EKFromPlatform EKSource = "platform"
)

// EKFacts is the result of an EK's verification.
type EKFacts struct {
	// Identity is ek:sha256:<Digest>, where Digest is the SHA-256 of the key's canonical
	// SubjectPublicKeyInfo.
	Identity attest.Identity
	Digest   [message.HashSize]byte
	// PublicKey is the EK, an *rsa.PublicKey or *ecdsa.PublicKey.
	PublicKey crypto.PublicKey
	// Source says what made it trusted. The fields below are set only for
	// [EKFromCertificate].
	Source EKSource
	// Profile is the name of the issuer's profile.
	Profile string
	// Chain is the verified chain, the EK certificate first and the root last.
	Chain []*x509.Certificate
	// Directory is the TPM's manufacturer, model and version, where the certificate states
	// them. Specification is the one it was built to, or nil.
	Directory     DirectoryName
	Specification *TPMSpecification
	// Tolerances names the fields of the profile without which this certificate
	// would have been refused, for example "InsecureAllowSHA1Links", in a fixed order.
	Tolerances []string
}

// Checks of an EK's trust.
const (
	// checkEKSources: a node presents an EK certificate and an EK without one, or
	// neither.
	checkEKSources refusal.Check = "ek-sources"
	// checkEKUntrusted: no issuer, list or platform vouches for the EK.
	checkEKUntrusted refusal.Check = "ek-untrusted"
	// checkEKUnjudged: the EK is in Allowed, or Platform states it, but it comes without a
	// certificate that Denied and CRLs could be checked against.
	checkEKUnjudged refusal.Check = "ek-unjudged"
	// checkEKIdentity: an identity in an allow-list is not of the form
	// ek:sha256:<64 hex digits>.
	checkEKIdentity refusal.Check = "ek-identity"
)

// EKVerifier decides which EKs are trusted. It is made once and is safe for concurrent use by
// multiple goroutines.
type EKVerifier struct {
	issuers  []*ekIssuer
	allowed  map[attest.Identity]bool
	platform PlatformEK
	denied   map[vendorID][]DeniedTPM
	judges   bool // there is a deny-list or a CRL store, and no EK may bypass them
	known    *linkMemory
}

// NewEKVerifier checks the configuration and returns a verifier. The error matches
// [refusal.CheckConfig] and names the field.
func NewEKVerifier(config EKVerifierConfig) (*EKVerifier, error) {
	if len(config.Issuers) == 0 && len(config.Allowed) == 0 && config.Platform == nil {
		return nil, refusal.Config("Issuers, Allowed and Platform", "", "one of them")
	}
	if len(config.Denied) > 0 && len(config.Issuers) == 0 {
		return nil, refusal.Config("Issuers", "", "at least one with Denied: without a trusted certificate nothing can be denied")
	}
	v := &EKVerifier{allowed: map[attest.Identity]bool{}, platform: config.Platform, denied: map[vendorID][]DeniedTPM{},
		known: newLinkMemory()}
	for n := range config.Issuers {
		i, err := newEKIssuer(config.Issuers[n], v.known)
		if err != nil {
			return nil, unusable("issuer", n, err)
		}
		i.fetcherID = sharedFetcher(v.issuers, n, i.Fetcher)
		v.issuers = append(v.issuers, i)
		v.judges = v.judges || i.CRLs != nil
	}
	for n, id := range config.Allowed {
		if _, err := attest.ParseIdentity(string(id)); err != nil || id.Kind() != ekIdentityKind {
			return nil, unusable("Allowed", n, checkEKIdentity.Refuse(string(id),
				"ek:sha256: and 64 lower-case hexadecimal digits"))
		}
		v.allowed[id] = true
	}
	for n, d := range config.Denied {
		vendor, err := d.check()
		if err != nil {
			return nil, unusable("Denied", n, err)
		}
		v.denied[vendor] = append(v.denied[vendor], d)
	}
	v.judges = (v.judges || len(v.denied) > 0) && !config.InsecureAllowUnjudged
	return v, nil
}

// Profiles returns the profiles of the issuers, in their order.
func (v *EKVerifier) Profiles() []EKProfile {
	var all []EKProfile
	for _, i := range cmp.Or(v, new(EKVerifier)).issuers {
		p := i.Profile
		p.Extensions, p.Projects = slices.Clone(p.Extensions), slices.Clone(p.Projects)
		all = append(all, p)
	}
	return all
}

// unusable says which element of a configuration cannot be used.
func unusable(field string, n int, err error) error {
	return &refusal.Error{Check: refusal.CheckConfig, Got: fmt.Sprintf("an unusable %s %d", field, n), Err: err}
}

// Verify decides whether the EK is trusted at the time now, and returns the facts about it. The
// machine is used only for Platform and may be nil without one. A refusal is a [*refusal.Error]; an
// error about something that could not be decided (Platform, Fetcher, an outdated revocation list)
// wraps [refusal.ErrRetry].
//
// Cheap checks come first: sizes and encoding, the key's strength and ROCA, Denied; then the
// issuers, Allowed, Platform. A certificate that is revoked, denied or for a ROCA-vulnerable
// key is refused even if the key is in Allowed. If there are CRLs or Denied, an EK that comes
// without a valid certificate is refused with the check "ek-unjudged", unless
// InsecureAllowUnjudged is set. Verify counts its signatures in budget; if it is nil, Verify
// uses one of its own.
func (v *EKVerifier) Verify(ctx context.Context, ek *EKPresented, machine *csr.Machine, now time.Time, budget *attest.Budget) (*EKFacts, error) {
	switch {
	case ctx == nil:
		return nil, errors.New("tpmcert: the context is nil")
	case v == nil || v.known == nil:
		return nil, errNotMade
	case ek == nil || ek.ek.PublicKey == nil:
		return nil, checkEKSources.Refuse("", "an EK certificate or an EK")
	}
	return v.verifyEK(ctx, newLinks(budget), ek, machine, now)
}

// EKPresented is an EK as a node sends it, parsed but not trusted.
type EKPresented struct {
	ek EKCertificate // without Certificate if it has none, and then there is no chain
	sentChain
}

// Identity returns the machine identity of the EK.
func (p *EKPresented) Identity() attest.Identity { return p.ek.Identity() }

// Key returns the EK, an *rsa.PublicKey or *ecdsa.PublicKey, about which nothing is known.
func (p *EKPresented) Key() crypto.PublicKey { return p.ek.PublicKey }

// ParseEKPresented parses the one EK that a node presents: from its certificate and the chain
// above it, in DER, leaf first and without the root, or, if it has none, from its canonical
// SubjectPublicKeyInfo. Exactly one of the two must be present. A refusal is a [*refusal.Error].
func ParseEKPresented(certificates [][]byte, ekPublic []byte) (*EKPresented, error) {
	switch {
	case len(certificates) > 0 && len(ekPublic) > 0:
		return nil, checkEKSources.Refuse("an EK certificate and an EK without one", "one EK")
	case len(certificates) == 0 && len(ekPublic) == 0:
		return nil, checkEKSources.Refuse("", "an EK certificate or an EK")
	case len(ekPublic) > 0:
		ek, err := parseEKPublic(ekPublic)
		if err != nil {
			return nil, err
		}
		return &EKPresented{ek: *ek, sentChain: sentChain{spki: ekPublic}}, nil
	}
	if err := checkNumber(certificates); err != nil {
		return nil, err
	}
	ek, err := ParseEK(certificates[0])
	if err != nil {
		return nil, err
	}
	return &EKPresented{ek: *ek, sentChain: sentChain{spki: ek.spki, leaf: ek.leaf, above: certificates[1:]}}, nil
}

// verifyEK decides about a parsed EK. The machine may be nil.
func (v *EKVerifier) verifyEK(ctx context.Context, w *links, p *EKPresented, machine *csr.Machine, now time.Time) (*EKFacts, error) {
	if err := v.checkDenied(p.ek.Directory); err != nil {
		return nil, err
	}
	facts, err := v.askIssuers(ctx, w, p, now)
	if err == nil || errors.Is(err, checkRevoked) { // no allow-list or platform can make up for that
		return facts, err
	}
	source, vouchErr := v.askOthers(ctx, p, machine)
	switch {
	case vouchErr != nil:
		return nil, vouchErr
	case source == "" || v.judges && errors.Is(err, refusal.ErrRetry):
		return nil, err
	case v.judges:
		return nil, &refusal.Error{Check: checkEKUnjudged, Got: string(p.Identity()) + " of source " + string(source) + ", with which no certificate comes that holds",
			Want: "one, as CRLs or Denied are there to judge it, or InsecureAllowUnjudged", Err: err}
	}
	return p.facts(source), nil
}

// facts returns the facts that need no certificate.
func (p *EKPresented) facts(source EKSource) *EKFacts {
	return &EKFacts{Identity: p.Identity(), Digest: p.ek.Digest, PublicKey: p.ek.PublicKey, Source: source}
}

// askOthers returns what vouches for an EK that no certificate vouches for, or "".
func (v *EKVerifier) askOthers(ctx context.Context, p *EKPresented, machine *csr.Machine) (EKSource, error) {
	if v.allowed[p.Identity()] {
		return EKFromAllowList, nil
	}
	if v.platform == nil || machine == nil {
		return "", nil
	}
	unknown := func(err error) error {
		return refusal.Retry(fmt.Errorf("the platform's EKs of machine %s: %w", machine.Name, err))
	}
	keys, err := v.platform.EndorsementKeys(ctx, machine)
	if err != nil {
		return "", unknown(err)
	}
	for _, key := range keys {
		digest, err := csr.SPKIHash(key)
		if err != nil {
			return "", unknown(err)
		}
		if digest == p.ek.Digest {
			return EKFromPlatform, nil
		}
	}
	return "", nil
}

// askIssuers returns the facts by the first issuer under which the certificate is valid and
// not revoked. What one issuer's list revokes, no other issuer can restore. If there is no
// such issuer, the error is that of the issuer that got furthest.
func (v *EKVerifier) askIssuers(ctx context.Context, w *links, p *EKPresented, now time.Time) (*EKFacts, error) {
	if p.leaf == nil {
		return nil, checkEKUntrusted.Refuse(string(p.Identity())+" without a certificate", "one that is on the list of EKs, or that the platform states")
	}
	if len(v.issuers) == 0 {
		return nil, checkEKUntrusted.Refuse(string(p.Identity()), "one that is on the list of EKs, or that the platform states, as no issuer is trusted")
	}
	above, err := p.path(ctx, w, v.known)
	if err != nil {
		return nil, err
	}
	var worst *ekRefusal
	for _, i := range v.issuers {
		facts, refused := i.verifyEK(ctx, w, p, above, now)
		if err := ctx.Err(); err != nil {
			return nil, refusal.Retry(fmt.Errorf("stopped between two issuers: %w", err))
		}
		if refused == nil {
			err := v.checkRevocation(facts.Chain, now)
			switch {
			case err == nil:
				return facts, nil
			case errors.Is(err, checkRevoked):
				return nil, err
			}
			refused = &ekRefusal{ekWithdrawn, err}
		}
		if worst == nil || refused.progress > worst.progress {
			worst = refused
		}
	}
	return nil, worst.err
}
