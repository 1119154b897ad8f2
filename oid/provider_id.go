package oid

import (
	"crypto/x509/pkix"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
)

// MaxProviderIDSize is the length in bytes of the longest provider ID.
const MaxProviderIDSize = 1024

// The reasons for refusing a provider ID or its extension.
const (
	// CheckProviderIDMissing: there is no such extension.
	CheckProviderIDMissing Check = "provider-id-missing"
	// CheckProviderIDDuplicate: there is more than one.
	CheckProviderIDDuplicate Check = "provider-id-duplicate"
	// CheckProviderIDCritical: the extension is critical.
	CheckProviderIDCritical Check = "provider-id-critical"
	// CheckProviderIDEncoding: the value is not one canonical DER UTF8String. A GCEInstance
	// is not one.
	CheckProviderIDEncoding Check = "provider-id-encoding"
	// CheckProviderIDSize: the text is empty or longer than MaxProviderIDSize.
	CheckProviderIDSize Check = "provider-id-size"
	// CheckProviderIDText: the text is not valid UTF-8, has a character that does not print
	// or changes how others print (controls, line and paragraph separators, spaces other
	// than U+0020, and format characters such as those that change the direction of text:
	// everything that unicode.IsPrint refuses), or begins or ends with a space.
	CheckProviderIDText Check = "provider-id-text"
)

// MarshalProviderID encodes a provider ID, such as "gce://project/zone/name", as the value
// of the extension [KubernetesNodeProviderIdentifier]: a DER UTF8String (Cluster API kubelet
// authentication, "OIDs"; the encoding is this SDK's choice, as the document gives none). id
// must be 1 to [MaxProviderIDSize] bytes of printable UTF-8, or the error is
// [CheckProviderIDSize] or [CheckProviderIDText].
func MarshalProviderID(id string) ([]byte, error) {
	if err := checkProviderID(id); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	addUTF8(&b, id)
	return b.Bytes()
}

// UnmarshalProviderID decodes what [MarshalProviderID] writes and refuses everything
// else with [CheckProviderIDEncoding], [CheckProviderIDSize] or [CheckProviderIDText].
func UnmarshalProviderID(der []byte) (string, error) {
	input, id := cryptobyte.String(der), ""
	if !readUTF8(&input, &id) || !input.Empty() {
		return "", refuse(CheckProviderIDEncoding, "", "one UTF8String in DER")
	}
	if err := checkProviderID(id); err != nil {
		return "", err
	}
	return id, nil
}

// ProviderIDExtension makes the extension that carries a provider ID in a request or a
// certificate. It is not critical: software that does not know it must ignore it. Errors are
// those of [MarshalProviderID].
func ProviderIDExtension(id string) (pkix.Extension, error) {
	value, err := MarshalProviderID(id)
	if err != nil {
		return pkix.Extension{}, err
	}
	name, _ := KubernetesNodeProviderIdentifier.ASN1()
	return pkix.Extension{Id: name, Value: value}, nil
}

// ParseProviderID finds the provider ID among the extensions of a request or a certificate:
// the extension must be present ([CheckProviderIDMissing]) and the only one
// ([CheckProviderIDDuplicate]), must not be critical ([CheckProviderIDCritical]), and must
// hold what [UnmarshalProviderID] accepts. The provider ID is what the owner claims if it is
// in a request, and what the issuer vouches for if it is in a certificate.
func ParseProviderID(extensions []pkix.Extension) (string, error) {
	var found *pkix.Extension
	for i := range extensions {
		if !KubernetesNodeProviderIdentifier.Equal(extensions[i].Id) {
			continue
		}
		if found != nil {
			return "", refuse(CheckProviderIDDuplicate, "the extension twice", "once")
		}
		found = &extensions[i]
	}
	if found == nil {
		return "", refuse(CheckProviderIDMissing, "", "the extension with a provider ID")
	}
	if found.Critical {
		return "", refuse(CheckProviderIDCritical, "a critical extension", "one that is not")
	}
	return UnmarshalProviderID(found.Value)
}

func checkProviderID(id string) error {
	if id == "" || len(id) > MaxProviderIDSize {
		return refuse(CheckProviderIDSize, strconv.Itoa(len(id))+" bytes", "1 to "+strconv.Itoa(MaxProviderIDSize))
	}
	if !isText(id) {
		return refuse(CheckProviderIDText, id, "printable UTF-8 without a space at either end")
	}
	return nil
}

// isText reports whether people can see exactly what s is: valid UTF-8, printable, no space
// at either end. s is not empty.
func isText(s string) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return utf8.ValidString(s) && s[0] != ' ' && s[len(s)-1] != ' ' && !strings.ContainsFunc(s, hidden)
}
