package tpm

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/plaintext"
	"github.com/nodeattest/nodeattest/oid"
)

// Identity names one machine, in one of the canonical forms:
//
//	ek:sha256:<64 hex digits>                 digest of the EK's SubjectPublicKeyInfo
//	ak:sha256:<64 hex digits>                 the same of the AK
//	gce:<project ID>/<instance ID>            Google's instance-identity extension
//	othername:<type-id>:<base64url of DER>    OtherName in the AK certificate's SAN
//	othername:<issuer>/<type-id>:<base64url>  the same, with the issuer's name
//
// Digests are over the canonical SubjectPublicKeyInfo (rsaEncryption with NULL,
// or a named curve), never over received bytes, so that one key has one
// identity. Two identities are the same if they are equal as strings.
type Identity string

// Kind is the part in front of the first colon: "ek", "ak", "gce" or
// "othername".
func (id Identity) Kind() string {
	kind, _, _ := strings.Cut(string(id), ":")
	return kind
}

// MaxIdentitySize bounds a machine identity in a registry or a list, in bytes.
const MaxIdentitySize = 1024

// Valid reports whether an identity can be recorded: a kind, a colon and a name,
// printable and of at most [MaxIdentitySize] bytes. [ParseIdentity] asks for more.
func (id Identity) Valid() bool {
	kind := id.Kind()
	return len(kind) > 0 && len(kind) < len(id)-1 && plaintext.Valid(string(id), MaxIdentitySize)
}

// IdentitySource finds a machine's identity in one form of AK certificate.
// Identify returns "" and no error where the certificate does not have that
// form, and an error where it has it and it is bad or ambiguous. An
// implementation must return one string for one machine, whatever the encoding,
// and start it with a kind of its own and a colon.
type IdentitySource interface {
	Identify(cert *x509.Certificate) (Identity, error)
}

// CheckIdentity: an AK certificate states an identity that is bad or
// ambiguous, or none of the profile's forms.
const CheckIdentity Check = "machine-identity"

// GCEIdentity reads Google's instance-identity extension
// ([oid.KubernetesNodeProviderIdentifier] in an AK certificate).
type GCEIdentity struct{}

// Identify returns gce:<project ID>/<instance ID>. A repeated extension and one that
// [oid.ParseGCEInstance] refuses is an error with [CheckIdentity].
func (GCEIdentity) Identify(cert *x509.Certificate) (Identity, error) {
	instance, err := gceInstance(cert)
	if instance == nil || err != nil {
		return "", err
	}
	return Identity("gce:" + instance.ProjectID + "/" + strconv.FormatUint(instance.InstanceID, 10)), nil
}

// gceInstance returns the decoded extension, or nil where there is none.
func gceInstance(cert *x509.Certificate) (*oid.GCEInstance, error) {
	var value []byte
	for i := range cert.Extensions {
		e := &cert.Extensions[i]
		if !oid.KubernetesNodeProviderIdentifier.Equal(e.Id) {
			continue
		}
		if value != nil {
			return nil, &Error{Check: CheckIdentity, Got: "two instance-identity extensions", Want: "one"}
		}
		value = e.Value
	}
	if value == nil {
		return nil, nil
	}
	instance, err := oid.ParseGCEInstance(value)
	if err != nil {
		return nil, &Error{Check: CheckIdentity, Got: "a bad instance-identity extension", Err: err}
	}
	return instance, nil
}

// OtherNameIdentity reads the OtherName in the subjectAltName of the AK
// certificate, the form of the 2018 document "Kubernetes node TLS bootstrapping
// via TPM". It is the issuer's word, and names a machine only among those of that issuer.
type OtherNameIdentity struct {
	// Types are the type-ids that count. Where it is empty, an OtherName of any
	// type counts.
	Types []oid.OID
	// Issuer is the caller's name for who issues, which becomes part of the identity:
	// up to 63 lower-case letters, digits, "." and "-". Empty leaves it out. Two issuers
	// with different roots that count the same types must have different names here:
	// otherwise each could certify the other's machines, and [NewVerifier] refuses them.
	// Roots of one authority belong into one [Issuer].
	Issuer string
}

// Identify returns othername:<type-id>:<base64url of the value's DER>, or
// othername:<issuer>/<type-id>:<base64url of the value's DER> where Issuer is not empty.
// Two OtherNames that count are an error with [CheckIdentity].
func (s OtherNameIdentity) Identify(cert *x509.Certificate) (Identity, error) {
	san, err := parseSubjectAltName(cert)
	if err != nil {
		return "", err
	}
	return s.find(san)
}

func (s OtherNameIdentity) find(san *subjectAltName) (Identity, error) {
	var found Identity
	for _, n := range san.otherNames {
		if !s.counts(n.typeID) {
			continue
		}
		if found != "" {
			return "", &Error{Check: CheckIdentity, Got: "two OtherNames", Want: "one"}
		}
		prefix := "othername:"
		if s.Issuer != "" {
			prefix += s.Issuer + "/"
		}
		found = Identity(prefix + n.typeID.String() + ":" + base64.RawURLEncoding.EncodeToString(n.value))
	}
	return found, nil
}

func (s OtherNameIdentity) counts(id oid.OID) bool {
	if len(s.Types) == 0 {
		return true
	}
	for _, t := range s.Types {
		if t == id {
			return true
		}
	}
	return false
}

// sharesTypes says that an OtherName can count for both.
func (s OtherNameIdentity) sharesTypes(o OtherNameIdentity) bool {
	return len(s.Types) == 0 || slices.ContainsFunc(s.Types, o.counts)
}

// validIssuerName reports whether a name can stand in an identity.
func validIssuerName(name string) bool {
	alien := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' }
	return name != "" && len(name) <= 63 && !strings.ContainsFunc(name, alien)
}

// checkOtherNames refuses issuers of which one could certify the machines of another: both
// take the identity from OtherNames of one type, under one name, and have different roots.
func checkOtherNames(issuers []Issuer) error {
	type source struct {
		issuer int
		OtherNameIdentity
	}
	var sources []source
	for n := range issuers {
		for _, s := range issuers[n].Profile.Identity {
			o, ok := s.(OtherNameIdentity)
			if p, isPointer := s.(*OtherNameIdentity); isPointer && p != nil {
				o, ok = *p, true
			}
			if !ok {
				continue
			}
			if o.Issuer != "" && !validIssuerName(o.Issuer) {
				return fmt.Errorf("issuer %d: an OtherNameIdentity of issuer %q, want up to 63 lower-case letters, digits, . and -", n, o.Issuer)
			}
			for _, other := range sources {
				if other.Issuer == o.Issuer && other.sharesTypes(o) && !sameCertificates(issuers[other.issuer].Roots, issuers[n].Roots) {
					return fmt.Errorf("issuers %d and %d: OtherNames of one type under two roots: give each OtherNameIdentity an Issuer, or one Issuer both roots",
						other.issuer, n)
				}
			}
			sources = append(sources, source{n, o})
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

// AKIdentity is the digest of the AK itself: the identity of last resort, which
// every AK certificate has. It names a key, and a machine only where the issuer
// certifies one AK a machine.
type AKIdentity struct{}

// Identify returns ak:sha256:<digest>. A key that is neither RSA nor ECDSA is an
// error.
func (AKIdentity) Identify(cert *x509.Certificate) (Identity, error) {
	sum, err := csr.SPKIHash(cert.PublicKey)
	if err != nil {
		return "", &Error{Check: CheckIdentity, Got: "an AK certificate for another kind of key", Want: "RSA or ECDSA", Err: err}
	}
	return digestIdentity("ak", sum), nil
}

func digestIdentity(kind string, sum [HashSize]byte) Identity {
	return Identity(kind + ":sha256:" + hex.EncodeToString(sum[:]))
}
