package attest

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Identity names one machine, in one of the canonical forms:
//
//	ek:sha256:<64 hex digits>                 digest of the EK's SubjectPublicKeyInfo
//	ak:sha256:<64 hex digits>                 the same of the AK
//	othername:<type-id>:<base64url of DER>    OtherName in the AK certificate's SAN
//	othername:<issuer>/<type-id>:<base64url>  the same, with the issuer's name
//
// Kinds of evidence bring others, each with its [Grammar]: gce, hwserial and chassis with
// tpmcert.Grammars, azure and aws with the clouds' packages. Digests are over the canonical
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
	return len(kind) > 0 && len(kind) < len(id)-1 && names.ValidText(string(id), message.MaxIdentitySize)
}

// Grammar is one kind of identity with its syntax.
type Grammar struct {
	// Kind is the part before the first colon: lower-case letters, digits and "-".
	Kind string
	// Parse checks an identity of this kind from a list, and returns its canonical form, which is
	// the one in a Result. Nil accepts every text without spaces; the kinds that [Identity] lists
	// have the grammar given there.
	Parse func(id Identity) (Identity, error)
}

// ParseIdentity reads a machine identity from a list: at most 1024 bytes without spaces, in canonical
// form, so that it can equal the identity in a Result. It checks the forms that [Identity] lists;
// other kinds are checked by code that has their grammars, such as [NewVerifier]. A kind consists of
// lower-case letters, digits and "-", and is not the name of a hash: a digest without a kind in front
// would match no machine. The error is an [*Error] of "machine-identity".
func ParseIdentity(s string) (Identity, error) {
	id := Identity(s)
	if !id.Valid() || strings.Contains(s, " ") || !validKind(id.Kind()) {
		return "", CheckIdentity.Refuse(s, "<kind>:<text without spaces>")
	}
	rest := s[len(id.Kind())+1:]
	switch id.Kind() {
	case "sha1", "sha256", "sha384", "sha512":
		return "", CheckIdentity.Refuse(s, "the kind of key in front of its digest, as in ek:sha256:<64 lower-case hexadecimal digits>")
	case "ek", "ak":
		digest, ok := strings.CutPrefix(rest, "sha256:")
		if !ok || !names.IsHex(digest, 2*message.HashSize) {
			return "", CheckIdentity.Refuse(s, id.Kind()+":sha256:<64 lower-case hexadecimal digits>")
		}
	case "othername":
		if !validOtherName(rest) {
			return "", CheckIdentity.Refuse(s, "othername:<type-id>:<base64url of DER>, <issuer>/ before the type-id where there is one")
		}
	}
	return id, nil
}

// validKind checks the octets of a kind; Valid has checked that there are any.
func validKind(kind string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return kind != "" && strings.Trim(kind, letters+"0123456789-") == "" && strings.Contains(letters, kind[:1])
}

// kinds names the kinds of identity on a road.
func (r *OpenRoad) kinds() []string {
	names := make([]string, len(r.Identities))
	for i, g := range r.Identities {
		names[i] = g.Kind
	}
	return names
}

// ParseIdentity checks an identity by the grammar of this road. The error is an [*Error] of
// "machine-identity", also if the road has no identities of its kind.
func (r *OpenRoad) ParseIdentity(id Identity) (Identity, error) {
	if r == nil {
		return "", CheckIdentity.Refuse(string(id), "an identity on an open road")
	}
	i := slices.IndexFunc(r.Identities, func(g Grammar) bool { return g.Kind == id.Kind() })
	if i < 0 {
		return "", CheckIdentity.Refuse(string(id), "one of kind "+refusal.Quotes(r.kinds()))
	}
	id, err := ParseIdentity(string(id))
	if err == nil && r.Identities[i].Parse != nil {
		id, err = r.Identities[i].Parse(id)
	}
	return id, err
}

func validOtherName(s string) bool {
	if issuer, rest, ok := strings.Cut(s, "/"); ok {
		if !names.ValidIssuer(issuer) {
			return false
		}
		s = rest
	}
	dotted, value, _ := strings.Cut(s, ":")
	_, typeErr := oid.Parse(dotted) // one text for one identifier
	// The value has no line breaks, which base64 skips: Valid refuses them.
	_, valueErr := base64.RawURLEncoding.Strict().DecodeString(value)
	return value != "" && typeErr == nil && valueErr == nil
}
