package oid

import (
	"crypto/x509/pkix"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// MaxProviderIDSize is the length in bytes of the longest provider ID.
const MaxProviderIDSize = 1024

// The reasons for which a provider ID or its extension is refused.
const (
	// ErrProviderIDMissing: there is no such extension.
	ErrProviderIDMissing Error = "provider-id-missing"
	// ErrProviderIDDuplicate: there is more than one.
	ErrProviderIDDuplicate Error = "provider-id-duplicate"
	// ErrProviderIDCritical: the extension is critical.
	ErrProviderIDCritical Error = "provider-id-critical"
	// ErrProviderIDEncoding: the value is not one canonical DER UTF8String. A
	// GCEInstance is none.
	ErrProviderIDEncoding Error = "provider-id-encoding"
	// ErrProviderIDSize: the text is empty or longer than MaxProviderIDSize.
	ErrProviderIDSize Error = "provider-id-size"
	// ErrProviderIDText: the text is not valid UTF-8, has a character that does not
	// print or changes how others print (controls, line and paragraph separators,
	// spaces but U+0020, and format characters such as those that turn the
	// direction of text: all that unicode.IsPrint refuses), or begins or ends with
	// a space.
	ErrProviderIDText Error = "provider-id-text"
)

// MarshalProviderID encodes a provider ID, such as "gce://project/zone/name", as the
// value of the extension [KubernetesNodeProviderIdentifier]: a DER UTF8String (Cluster
// API kubelet authentication, "OIDs"; the encoding is this SDK's choice, the document
// gives none). id is 1 to [MaxProviderIDSize] bytes of printable UTF-8, else the error
// is [ErrProviderIDSize] or [ErrProviderIDText].
func MarshalProviderID(id string) ([]byte, error) {
	if err := checkProviderID(id); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.UTF8String, func(b *cryptobyte.Builder) {
		b.AddBytes([]byte(id))
	})
	return b.Bytes()
}

// UnmarshalProviderID decodes what [MarshalProviderID] writes and refuses everything
// else with [ErrProviderIDEncoding], [ErrProviderIDSize] or [ErrProviderIDText].
func UnmarshalProviderID(der []byte) (string, error) {
	input := cryptobyte.String(der)
	var text cryptobyte.String
	if !input.ReadASN1(&text, cryptobyteasn1.UTF8String) || !input.Empty() {
		return "", ErrProviderIDEncoding
	}
	id := string(text)
	if err := checkProviderID(id); err != nil {
		return "", err
	}
	return id, nil
}

// ProviderIDExtension makes the extension that carries a provider ID in a request or a
// certificate. It is not critical: software that does not know it must go on. Errors
// are those of [MarshalProviderID].
func ProviderIDExtension(id string) (pkix.Extension, error) {
	value, err := MarshalProviderID(id)
	if err != nil {
		return pkix.Extension{}, err
	}
	name, _ := KubernetesNodeProviderIdentifier.ASN1()
	return pkix.Extension{Id: name, Value: value}, nil
}

// ParseProviderID finds the provider ID among the extensions of a request or a
// certificate: the extension must be there ([ErrProviderIDMissing]) once
// ([ErrProviderIDDuplicate]), not critical ([ErrProviderIDCritical]), and hold what
// [UnmarshalProviderID] takes. The identifier is what the certificate's owner claims or
// its issuer vouches for, depending on where it stands.
func ParseProviderID(extensions []pkix.Extension) (string, error) {
	var found *pkix.Extension
	for i := range extensions {
		if !KubernetesNodeProviderIdentifier.Equal(extensions[i].Id) {
			continue
		}
		if found != nil {
			return "", ErrProviderIDDuplicate
		}
		found = &extensions[i]
	}
	if found == nil {
		return "", ErrProviderIDMissing
	}
	if found.Critical {
		return "", ErrProviderIDCritical
	}
	return UnmarshalProviderID(found.Value)
}

func checkProviderID(id string) error {
	if id == "" || len(id) > MaxProviderIDSize {
		return ErrProviderIDSize
	}
	if !isText(id) {
		return ErrProviderIDText
	}
	return nil
}

// isText reports whether people see what s is: valid UTF-8, printable, no space at
// either end. s is not empty.
func isText(s string) bool {
	if !utf8.ValidString(s) || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
