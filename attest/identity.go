package attest

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
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
// via TPM".
type OtherNameIdentity struct {
	// Types are the type-ids that count. Where it is empty, an OtherName of any
	// type counts.
	Types []oid.OID
}

// Identify returns othername:<type-id>:<base64url of the value's DER>. Two
// OtherNames that count are an error with [CheckIdentity].
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
		found = Identity("othername:" + n.typeID.String() + ":" + base64.RawURLEncoding.EncodeToString(n.value))
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
