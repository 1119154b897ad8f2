package tpmcert

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// IdentitySource finds a machine's identity in one form of AK certificate. Identify returns
// "" and no error if the certificate does not have that form, and an error if it does but the
// identity is malformed or ambiguous. An implementation must return the same string for the
// same machine, whatever the encoding, and start it with a kind of its own and a colon.
type IdentitySource interface {
	// Kind returns the kind of the identities, for example "gce".
	Kind() string
	Identify(cert *x509.Certificate) (attest.Identity, error)
}

// GCEIdentity reads Google's instance-identity extension
// ([oid.KubernetesNodeProviderIdentifier] in an AK certificate).
type GCEIdentity struct{}

// Identify returns gce:<project ID>/<instance ID>. An extension that
// [oid.ParseGCEInstance] refuses is an error with [attest.CheckIdentity].
func (GCEIdentity) Identify(cert *x509.Certificate) (attest.Identity, error) {
	e := extension(cmp.Or(cert, new(x509.Certificate)), oid.KubernetesNodeProviderIdentifier)
	if e == nil {
		return "", nil
	}
	instance, err := oid.ParseGCEInstance(e.Value)
	if err != nil {
		return "", &refusal.Error{Check: attest.CheckIdentity, Got: "a bad instance-identity extension", Err: err}
	}
	return attest.Identity("gce:" + instance.ProjectID + "/" + strconv.FormatUint(instance.InstanceID, 10)), nil
}

// OtherNameIdentity reads the OtherName in the subjectAltName of the AK certificate, the form
// of the 2018 document "Kubernetes node TLS bootstrapping via TPM". It is the issuer's word,
// and names a machine only among that issuer's machines.
type OtherNameIdentity struct {
	// Types are the type-ids that count. If empty, an OtherName of any type counts.
	Types []oid.OID
	// Issuer is the caller's name for the issuer, which becomes part of the identity: up to
	// 63 lower-case letters, digits, "." and "-". If empty, it is left out. Two issuers with
	// different roots that count the same types must have different names here: otherwise
	// each could certify the other's machines, and [NewAKVerifier] refuses them. Roots of one
	// authority belong in one [Issuer].
	Issuer string
}

// Identify returns othername:<type-id>:<base64url of the value's DER>, or
// othername:<issuer>/<type-id>:<base64url of the value's DER> if Issuer is not empty. Two
// OtherNames that count are an error with [attest.CheckIdentity].
func (s OtherNameIdentity) Identify(cert *x509.Certificate) (attest.Identity, error) {
	return identifyBySAN(s, cert)
}

// sanSource is a source of identities that stand in the subjectAltName. inDirectory is the
// profile's InsecureAllowDirectoryName.
type sanSource interface {
	find(san *subjectAltName, inDirectory bool) (attest.Identity, error)
}

func identifyBySAN(s sanSource, cert *x509.Certificate) (attest.Identity, error) {
	san, err := parseSubjectAltName(cert)
	if err != nil {
		return "", err
	}
	return s.find(san, false)
}

func (s OtherNameIdentity) find(san *subjectAltName, _ bool) (attest.Identity, error) {
	var found attest.Identity
	for _, n := range san.otherNames {
		if !s.counts(n.Type) {
			continue
		}
		if found != "" {
			return "", attest.CheckIdentity.Refuse("two OtherNames", "one")
		}
		prefix := "othername:"
		if s.Issuer != "" {
			prefix += s.Issuer + "/"
		}
		found = attest.Identity(prefix + n.Type.String() + ":" + base64.RawURLEncoding.EncodeToString(n.Value))
	}
	return found, nil
}

func (s OtherNameIdentity) counts(id oid.OID) bool {
	return len(s.Types) == 0 || slices.Contains(s.Types, id)
}

// sharesTypes reports whether an OtherName can count for both.
func (s OtherNameIdentity) sharesTypes(o OtherNameIdentity) bool {
	return len(s.Types) == 0 || slices.ContainsFunc(s.Types, o.counts)
}

// scoped is a source of identities that name a machine only among those of one issuer. scope
// returns the issuer and types, as an OtherNameIdentity.
type scoped interface {
	IdentitySource
	scope() OtherNameIdentity
}

func (s OtherNameIdentity) scope() OtherNameIdentity { return s }

// checkScopes refuses issuers if one could certify the machines of another: both accept
// identities of the same kind and type, under the same name, but have different roots.
func checkScopes(issuers []Issuer) error {
	type source struct {
		issuer int
		kind   string
		OtherNameIdentity
	}
	var sources []source
	for n := range issuers {
		for _, s := range issuers[n].Profile.Identity {
			scoped, ok := s.(scoped)
			if !ok {
				continue
			}
			o := source{n, s.Kind(), scoped.scope()}
			if needed := o.kind != (OtherNameIdentity{}).Kind(); (needed || o.Issuer != "") && !names.ValidIssuer(o.Issuer) {
				return fmt.Errorf("issuer %d: identities of kind %s of issuer %q, want up to 63 lower-case letters, digits, . and -", n, o.kind, o.Issuer)
			}
			for _, other := range sources {
				if other.kind == o.kind && other.Issuer == o.Issuer && other.sharesTypes(o.OtherNameIdentity) && !sameCertificates(issuers[other.issuer].Roots, issuers[n].Roots) {
					return fmt.Errorf("issuers %d and %d: identities of kind %s and one type under two roots: give each source an Issuer of its own, or one Issuer both roots",
						other.issuer, n, o.kind)
				}
			}
			sources = append(sources, o)
		}
	}
	return nil
}

// sameCertificates compares two sets.
func sameCertificates(a, b []*x509.Certificate) bool {
	in := func(set []*x509.Certificate) func(*x509.Certificate) bool {
		return func(c *x509.Certificate) bool { return !slices.ContainsFunc(set, c.Equal) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// AKIdentity is the digest of the AK itself: the identity of last resort, which every AK
// certificate has. It names a key, and a machine only if the issuer certifies one AK per
// machine.
type AKIdentity struct{}

// Identify returns ak:sha256:<digest>. A key that is neither RSA nor ECDSA is an
// error.
func (AKIdentity) Identify(cert *x509.Certificate) (attest.Identity, error) {
	cert = cmp.Or(cert, new(x509.Certificate))
	spki, err := canonicalSPKI(cert, cert.PublicKey)
	if err != nil {
		return "", &refusal.Error{Check: attest.CheckIdentity, Got: "an AK certificate for another kind of key", Want: "RSA or ECDSA", Err: err}
	}
	return digestIdentity(AKIdentityKind, sha256.Sum256(spki)), nil
}

func digestIdentity(kind string, sum [message.HashSize]byte) attest.Identity {
	return attest.Identity(hex.AppendEncode(append(make([]byte, 0, 80), kind+":sha256:"...), sum[:]))
}

// AKIdentityKind is the kind of identities that name a key.
const AKIdentityKind = "ak"

// Kind returns "ak".
func (AKIdentity) Kind() string { return AKIdentityKind }

// Kind returns "gce".
func (GCEIdentity) Kind() string { return "gce" }

// Kind returns "othername".
func (OtherNameIdentity) Kind() string { return "othername" }
