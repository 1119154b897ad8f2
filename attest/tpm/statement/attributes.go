package statement

import (
	"cmp"
	"strconv"
	"strings"
)

// Attributes is a TPMA_OBJECT, the attributes of a TPM object: TPM 2.0 Library, Part 2, 8.3. The
// TPM enforces them, and they are part of the key's Name.
type Attributes uint32

// The attributes that decide something here, one bit each; [Attributes.String] names the others.
const (
	// AttributeFixedTPM: the object can never leave its TPM.
	AttributeFixedTPM Attributes = 1 << 1
	// AttributeFixedParent: the object can never be given another parent.
	AttributeFixedParent Attributes = 1 << 4
	// AttributeSensitiveDataOrigin: the TPM made the private part. A software key can be
	// loaded with this bit set, so by itself it proves nothing.
	AttributeSensitiveDataOrigin Attributes = 1 << 5
	// AttributeUserWithAuth: the authorization value is enough to authorize use.
	AttributeUserWithAuth Attributes = 1 << 6
	// AttributeEncryptedDuplication: the object may be duplicated only under an inner
	// wrapper.
	AttributeEncryptedDuplication Attributes = 1 << 11
	// AttributeRestricted: the key works on structures that the TPM made, and not on data
	// that only looks like one.
	AttributeRestricted Attributes = 1 << 16
	// AttributeDecrypt: the private part may decrypt.
	AttributeDecrypt Attributes = 1 << 17
	// AttributeSign: the private part may sign.
	AttributeSign Attributes = 1 << 18
	// AttributeX509Sign: the key signs with TPM2_CertifyX509 and not with TPM2_Sign.
	AttributeX509Sign Attributes = 1 << 19
)

// reservedAttributes are the bits to which no published revision gives a meaning.
const reservedAttributes = ^Attributes(0x000f0ff6)

// attributeNames has the specification's name for each bit, "" for a reserved one.
var attributeNames = [32]string{
	1: "fixedTPM", 2: "stClear", 4: "fixedParent", 5: "sensitiveDataOrigin",
	6: "userWithAuth", 7: "adminWithPolicy", 8: "firmwareLimited", 9: "svnLimited",
	10: "noDA", 11: "encryptedDuplication",
	16: "restricted", 17: "decrypt", 18: "sign", 19: "x509sign",
}

// Has reports whether every bit of all is set in a.
func (a Attributes) Has(all Attributes) bool { return a&all == all }

// HasAny reports whether at least one bit of some is set in a.
func (a Attributes) HasAny(some Attributes) bool { return a&some != 0 }

// String returns the specification's names in the order of their bits, joined by "|", as in
// "fixedTPM|fixedParent|sign"; a reserved bit is "bit" and its number, and no bit at all is
// "none".
func (a Attributes) String() string {
	if a == 0 {
		return "none"
	}
	words := make([]string, 0, 8)
	for i, name := range attributeNames {
		if a&(1<<i) != 0 {
			words = append(words, cmp.Or(name, "bit"+strconv.Itoa(i)))
		}
	}
	return strings.Join(words, "|")
}
