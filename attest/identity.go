package attest

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/plaintext"
	"github.com/nodeattest/nodeattest/oid"
)

// Identity names one machine, in one of the canonical forms:
//
//	ek:sha256:<64 hex digits>                 digest of the EK's SubjectPublicKeyInfo
//	ak:sha256:<64 hex digits>                 the same of the AK
//	gce:<project ID>/<instance ID>            Google's instance-identity extension, or its token
//	azure:<subscription ID>/<VM ID>           two UUIDs in lower case, of Azure's document
//	othername:<type-id>:<base64url of DER>    OtherName in the AK certificate's SAN
//	othername:<issuer>/<type-id>:<base64url>  the same, with the issuer's name
//	hwserial:<issuer>/<serial number>         HardwareModuleName in the AK certificate's SAN
//	chassis:<issuer>/<part number>/<serial>   common name and serial number of its subject
//
// The texts of the last two are percent-encoded as [url.PathEscape] does it. Packages in other
// modules have kinds of their own, such as aws in cloud/nitro. Digests are over the canonical
// SubjectPublicKeyInfo (rsaEncryption with NULL, or a named curve), never over received bytes,
// so that one key has one identity. Two identities are the same if they are equal as strings.
type Identity string

// Kind is the part before the first colon: "ek" or "gce", for example.
func (id Identity) Kind() string {
	kind, _, _ := strings.Cut(string(id), ":")
	return kind
}

// Valid reports whether an identity can be recorded: a kind, a colon and a name, printable and
// at most 1024 bytes long. [ParseIdentity] is stricter.
func (id Identity) Valid() bool {
	kind := id.Kind()
	return len(kind) > 0 && len(kind) < len(id)-1 && plaintext.Valid(string(id), message.MaxIdentitySize)
}

// CheckIdentity: evidence states a bad or ambiguous machine identity, or none.
const CheckIdentity Check = "machine-identity"

// ParseIdentity reads a machine identity as a person writes it into a list: at most 1024 bytes
// without spaces. The forms that [Identity] lists must be in their one spelling, so that what
// is accepted can be what a verification finds. For azure: it accepts either case of letters,
// as Azure's interfaces give both, and returns that spelling. A kind of the caller's own
// consists of lower-case letters, digits and "-", and is not the name of a hash: a digest
// without a kind in front would match no machine. The error is an [*Error] with CheckIdentity.
func ParseIdentity(s string) (Identity, error) {
	id := Identity(s)
	if !id.Valid() || strings.Contains(s, " ") || !validKind(id.Kind()) {
		return "", badIdentity(s, "<kind>:<text without spaces>")
	}
	rest := s[len(id.Kind())+1:]
	switch id.Kind() {
	case "sha1", "sha256", "sha384", "sha512":
		return "", badIdentity(s, "the kind of key in front of its digest, as in ek:sha256:<64 lower-case hexadecimal digits>")
	case "ek", "ak":
		digest, ok := strings.CutPrefix(rest, "sha256:")
		if b, err := hex.DecodeString(digest); !ok || err != nil || len(b) != message.HashSize || strings.ToLower(digest) != digest {
			return "", badIdentity(s, id.Kind()+":sha256:<64 lower-case hexadecimal digits>")
		}
	case "gce":
		project, instance, ok := strings.Cut(rest, "/")
		if n, err := strconv.ParseUint(instance, 10, 64); !ok || project == "" || err != nil || strconv.FormatUint(n, 10) != instance {
			return "", badIdentity(s, "gce:<project ID>/<instance ID>")
		}
	case "azure":
		subscription, vm, _ := strings.Cut(strings.ToLower(rest), "/")
		if !validUUID(subscription) || !validUUID(vm) {
			return "", badIdentity(s, "azure:<subscription ID>/<VM ID>, two UUIDs")
		}
		id = Identity("azure:" + subscription + "/" + vm)
	case "othername":
		if !validOtherName(rest) {
			return "", badIdentity(s, "othername:<type-id>:<base64url of DER>, <issuer>/ before the type-id where there is one")
		}
	case "hwserial":
		if !validParts(rest, 1) {
			return "", badIdentity(s, "hwserial:<issuer>/<serial number, percent-encoded>")
		}
	case "chassis":
		if !validParts(rest, 2) {
			return "", badIdentity(s, "chassis:<issuer>/<part number>/<serial number>, percent-encoded")
		}
	}
	return id, nil
}

func badIdentity(got, want string) error {
	return &Error{Check: CheckIdentity, Got: got, Want: want}
}

// validKind checks the octets of a kind; Valid has checked that there are any.
func validKind(kind string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return strings.Trim(kind, letters+"0123456789-") == "" && strings.Contains(letters, kind[:1])
}

// validUUID reports whether s is a UUID in lower case, with hyphens.
func validUUID(s string) bool {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	return err == nil && len(b) == 16 && len(s) == 36 && s == strings.ToLower(s) && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-'
}

// validParts reports whether s is an issuer's name and n texts, each in its one
// percent-encoding.
func validParts(s string, n int) bool {
	parts := strings.Split(s, "/")
	bad := func(part string) bool {
		text, err := url.PathUnescape(part)
		return err != nil || text == "" || url.PathEscape(text) != part
	}
	return len(parts) == n+1 && plaintext.IssuerName(parts[0]) && !slices.ContainsFunc(parts[1:], bad)
}

func validOtherName(s string) bool {
	if issuer, rest, ok := strings.Cut(s, "/"); ok {
		if !plaintext.IssuerName(issuer) {
			return false
		}
		s = rest
	}
	dotted, value, _ := strings.Cut(s, ":")
	if value == "" { // it has no line breaks, which base64 skips: Valid refuses them
		return false
	}
	if _, err := oid.Parse(dotted); err != nil { // one text for one identifier
		return false
	}
	_, err := base64.RawURLEncoding.Strict().DecodeString(value)
	return err == nil
}
