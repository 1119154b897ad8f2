package tpmcert

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// EKIssuer is one issuer of EK certificates that the control plane trusts: in most
// cases a TPM vendor. A vendor's root admits every TPM that the vendor ever made, so
// this is never acceptance: that takes an [attest.Authorizer].
type EKIssuer struct {
	// Roots are the trust anchors, at least one. The system's roots are never asked.
	Roots []*x509.Certificate
	// Intermediates are certificates that the node need not send. They are not
	// trusted by themselves.
	Intermediates []*x509.Certificate
	// Profile says what the issuer's EK certificates look like.
	Profile EKProfile
	// CRLs are the issuer's revocation lists; nil where there are none. What a list of
	// any issuer revokes is refused under every issuer, and everything below a CA that
	// has a list and none that can be used is [CheckRevocationUnknown]. A list that
	// Roots and Intermediates show to be useless is an error of [NewEKVerifier]: not
	// signed by the CA of its name, over SHA-1 without InsecureAllowSHA1Links, of a CA
	// without cRLSign, or signed by one of them under another name.
	CRLs *CRLStore
	// RequireCRL refuses a certificate of a chain to one of Roots, the root aside, for
	// which there is no current list.
	RequireCRL bool
	// Fetcher gets issuer certificates that neither the node nor Intermediates have.
	// Nil, the usual choice, fetches nothing.
	Fetcher IssuerFetcher
}

// EKVerifierConfig says which EKs are trusted. At least one of Issuers, Allowed and
// Platform must be given.
type EKVerifierConfig struct {
	// Issuers are asked in their order, for an EK that comes with a certificate.
	Issuers []EKIssuer
	// Allowed are EKs that are trusted without a chain, each as
	// ek:sha256:<64 hex digits> of the canonical SubjectPublicKeyInfo.
	Allowed []attest.Identity
	// Platform is asked for the EKs of the machine where neither helped.
	Platform PlatformEK
	// Denied are TPMs that are refused whoever vouches for them. They are judged by
	// their certificates, so it needs Issuers.
	Denied []DeniedTPM
	// InsecureAllowUnjudged lets EKs through that Allowed or Platform alone vouches
	// for, although Denied or CRLs are there. Both judge certificates, and who leaves
	// the certificate of a revoked or denied EK at home, or brings one of his own
	// making, gets past both. Without it such an EK must come with a certificate that
	// holds under one of Issuers.
	InsecureAllowUnjudged bool
}

// PlatformEK is an infrastructure's own word for the EKs of its machines: AWS
// (GetInstanceTpmEkPub), vCenter (the virtual TPM's endorsement key certificates),
// Compute Engine (getShieldedInstanceIdentity).
type PlatformEK interface {
	// EndorsementKeys returns the EKs that the platform states for the machine, each
	// an *rsa.PublicKey or *ecdsa.PublicKey; none where it does not know the machine.
	// The machine is what the policy found for the node's name: the platform's own
	// name for it is in its provider ID. An error means that nothing could be found
	// out: the request is looked at again. It is called from many goroutines.
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

// EKFacts is what the verification of an EK found out.
type EKFacts struct {
	// Identity is ek:sha256:<Digest>, Digest the SHA-256 of the key's canonical
	// SubjectPublicKeyInfo.
	Identity attest.Identity
	Digest   [message.HashSize]byte
	// PublicKey is the EK, an *rsa.PublicKey or *ecdsa.PublicKey.
	PublicKey crypto.PublicKey
	// Source says what made it trusted. The fields below are set for
	// [EKFromCertificate] alone.
	Source EKSource
	// Profile is the name of the issuer's profile.
	Profile string
	// Chain is the verified chain, the EK certificate first and the root last.
	Chain []*x509.Certificate
	// Directory is the TPM's manufacturer, model and version where the certificate
	// states them, Specification what it was built to, or nil.
	Directory     DirectoryName
	Specification *TPMSpecification
	// Tolerances names the fields of the profile without which this certificate
	// would have been refused, for example "InsecureAllowSHA1Links", in a fixed order.
	Tolerances []string
}

// Checks of an EK's trust.
const (
	// CheckEKSources: a node presents an EK certificate and an EK without one, or
	// neither.
	CheckEKSources Check = "ek-sources"
	// CheckEKUntrusted: no issuer, list or platform vouches for the EK.
	CheckEKUntrusted Check = "ek-untrusted"
	// CheckEKUnjudged: the EK is in Allowed, or Platform states it, and it comes without
	// a certificate that Denied and CRLs could be held against.
	CheckEKUnjudged Check = "ek-unjudged"
	// CheckEKIdentity: an identity in an allow-list is not of the form
	// ek:sha256:<64 hex digits>.
	CheckEKIdentity Check = "ek-identity"
)

// EKVerifier decides which EKs are trusted. It is made once and is safe for use from
// many goroutines.
type EKVerifier struct {
	issuers  []*ekIssuer
	allowed  map[[message.HashSize]byte]bool
	platform PlatformEK
	denied   []deniedTPM
	judges   bool // there are deny-lists or revocation lists, and no EK gets past them
	known    *linkMemory
}

// NewEKVerifier checks the configuration and returns a verifier. The error matches
// [refusal.CheckConfig] and names the field.
func NewEKVerifier(c EKVerifierConfig) (*EKVerifier, error) {
	if len(c.Issuers) == 0 && len(c.Allowed) == 0 && c.Platform == nil {
		return nil, refusal.Config("Issuers, Allowed and Platform", "", "one of them")
	}
	if len(c.Denied) > 0 && len(c.Issuers) == 0 {
		return nil, refusal.Config("Issuers", "", "some with Denied: no certificate holds, so nothing could be denied")
	}
	v := &EKVerifier{allowed: map[[message.HashSize]byte]bool{}, platform: c.Platform, known: newLinkMemory()}
	for n := range c.Issuers {
		i, err := newEKIssuer(c.Issuers[n], v.known)
		if err != nil {
			return nil, unusable("issuer", n, err)
		}
		i.fetcherID = sharedFetcher(v.issuers, n, i.Fetcher)
		v.issuers = append(v.issuers, i)
		v.judges = v.judges || i.CRLs != nil
	}
	for n, id := range c.Allowed {
		digest, err := ekDigest(id)
		if err != nil {
			return nil, unusable("Allowed", n, err)
		}
		v.allowed[digest] = true
	}
	for n := range c.Denied {
		d, err := newDeniedTPM(c.Denied[n])
		if err != nil {
			return nil, unusable("Denied", n, err)
		}
		v.denied = append(v.denied, d)
	}
	v.judges = (v.judges || len(v.denied) > 0) && !c.InsecureAllowUnjudged
	return v, nil
}

// unusable says which element of a configuration cannot be used.
func unusable(field string, n int, err error) error {
	return &Error{Check: refusal.CheckConfig, Got: fmt.Sprintf("an unusable %s %d", field, n), Err: err}
}

// Verify decides whether the EK is trusted at the time now, and says what is known of
// it. The machine is for Platform alone and may be nil where there is none. A refusal
// is an [*Error] whose text says what was found and what was expected; what could not
// be decided (Platform, Fetcher, a revocation list past its time) wraps
// [csr.ErrRetry].
//
// Cheap checks come first: sizes and encoding, the key's strength and ROCA, Denied;
// then the issuers, Allowed, Platform. A certificate that is revoked, denied or of a
// ROCA-vulnerable key is refused even where the key is in Allowed; where there are CRLs
// or Denied, an EK that comes without a certificate that holds is refused with
// [CheckEKUnjudged], unless InsecureAllowUnjudged is set.
// It counts its signatures in budget; nil means one of its own.
func (v *EKVerifier) Verify(ctx context.Context, ek *EKPresented, machine *csr.Machine, now time.Time, budget *attest.Budget) (*EKFacts, error) {
	if ek == nil {
		return nil, errors.New("no EK")
	}
	return v.verifyEK(ctx, newLinks(budget), ek, machine, now)
}

// EKPresented is an EK as a node sends it, parsed and not trusted.
type EKPresented struct {
	key    crypto.PublicKey
	digest [message.HashSize]byte
	cert   *EKCertificate // nil where the EK has none, and so is the chain
	sentChain
}

// Identity is the machine identity of the EK.
func (p *EKPresented) Identity() attest.Identity { return digestIdentity("ek", p.digest) }

// Key is the EK, an *rsa.PublicKey or *ecdsa.PublicKey, and nothing is known of it.
func (p *EKPresented) Key() crypto.PublicKey { return p.key }

// ParseEKPresented reads the one EK that a node presents: from its certificate and what
// stands above it, DER, leaf first and root left out, or, where it has none, from its
// canonical SubjectPublicKeyInfo. Exactly one of the two must be there. A refusal is an
// [*Error].
func ParseEKPresented(certificates [][]byte, ekPublic []byte) (*EKPresented, error) {
	switch {
	case len(certificates) > 0 && len(ekPublic) > 0:
		return nil, refuse(CheckEKSources, "an EK certificate and an EK without one", "one EK")
	case len(certificates) == 0 && len(ekPublic) == 0:
		return nil, refuse(CheckEKSources, "", "an EK certificate or an EK")
	case len(ekPublic) > 0:
		key, digest, err := parseEKPublic(ekPublic)
		if err != nil {
			return nil, err
		}
		return &EKPresented{key: key, digest: digest, sentChain: sentChain{spki: ekPublic}}, nil
	}
	if err := checkNumber(certificates); err != nil {
		return nil, err
	}
	cert, err := ParseEK(certificates[0])
	if err != nil {
		return nil, err
	}
	return &EKPresented{key: cert.PublicKey, digest: cert.Digest, cert: cert,
		sentChain: sentChain{spki: cert.spki, leaf: &certificate{Certificate: cert.Certificate}, above: certificates[1:]}}, nil
}

// verifyEK decides about an EK that has been read. The machine may be nil.
func (v *EKVerifier) verifyEK(ctx context.Context, w *links, p *EKPresented, machine *csr.Machine, now time.Time) (*EKFacts, error) {
	if p.cert != nil {
		if err := v.checkDenied(p.cert.Directory); err != nil {
			return nil, err
		}
	}
	facts := &EKFacts{Identity: p.Identity(), Digest: p.digest, PublicKey: p.key}
	err := v.askIssuers(ctx, w, p, facts, now)
	switch {
	case err == nil:
		return facts, nil
	case errors.Is(err, CheckRevoked): // which no allow-list or platform can heal
		return nil, err
	}
	source, vouchErr := v.askOthers(ctx, p, machine)
	switch {
	case vouchErr != nil:
		return nil, vouchErr
	case source == "" || v.judges && errors.Is(err, csr.ErrRetry):
		return nil, err
	case v.judges:
		return nil, &Error{Check: CheckEKUnjudged, Got: "an EK of source " + string(source) + " that no certificate comes with that holds",
			Want: "one, as CRLs or Denied are there to judge it, or InsecureAllowUnjudged", Err: err}
	}
	facts.Source = source
	return facts, nil
}

// askOthers returns who vouches for an EK that no certificate vouches for, or "".
func (v *EKVerifier) askOthers(ctx context.Context, p *EKPresented, machine *csr.Machine) (EKSource, error) {
	if v.allowed[p.digest] {
		return EKFromAllowList, nil
	}
	if v.platform == nil || machine == nil {
		return "", nil
	}
	unknown := func(err error) error {
		return csr.Retry(fmt.Errorf("the platform's EKs of machine %s: %w", machine.Name, err))
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
		if digest == p.digest {
			return EKFromPlatform, nil
		}
	}
	return "", nil
}

// askIssuers fills the facts from the first issuer under which the certificate holds and
// is not revoked; what the list of one issuer revokes, no other issuer heals. Where none
// does, the error is of the issuer that came furthest.
func (v *EKVerifier) askIssuers(ctx context.Context, w *links, p *EKPresented, facts *EKFacts, now time.Time) error {
	if p.cert == nil || len(v.issuers) == 0 {
		return refuse(CheckEKUntrusted, string(p.Identity()), "an EK that is on the list, or that the platform states")
	}
	var worst *ekRefusal
	for _, i := range v.issuers {
		found := *facts
		refused := i.verifyEK(ctx, w, p, &found, now)
		if err := ctx.Err(); err != nil {
			return csr.Retry(fmt.Errorf("stopped between two issuers: %w", err))
		}
		if refused == nil {
			err := v.checkRevocation(found.Chain, now)
			if err == nil {
				*facts = found
			}
			if err == nil || errors.Is(err, CheckRevoked) {
				return err
			}
			refused = &ekRefusal{ekWithdrawn, err}
		}
		if worst == nil || refused.progress > worst.progress {
			worst = refused
		}
	}
	return worst.err
}

// ekDigest reads an identity of the form ek:sha256:<64 hex digits>.
func ekDigest(id attest.Identity) (digest [message.HashSize]byte, err error) {
	const prefix = "ek:sha256:"
	text, ok := strings.CutPrefix(string(id), prefix)
	if n, err := hex.Decode(digest[:], []byte(text[:min(len(text), 2*message.HashSize)])); !ok || err != nil ||
		n != message.HashSize || digestIdentity("ek", digest) != id {
		return digest, refuse(CheckEKIdentity, string(id), prefix+" and 64 lower-case hexadecimal digits")
	}
	return digest, nil
}
