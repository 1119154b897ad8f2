package oid

import (
	"crypto/x509/pkix"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// MaxProviderIDSize is the length in bytes of the longest provider ID.
const MaxProviderIDSize = 1024

// The reasons for refusing a provider ID or its extension.
const (
	// CheckProviderIDMissing: there is no such extension.
	CheckProviderIDMissing refusal.Check = "provider-id-missing"
	// checkProviderIDDuplicate: there is more than one.
	checkProviderIDDuplicate refusal.Check = "provider-id-duplicate"
	// checkProviderIDCritical: the extension is critical.
	checkProviderIDCritical refusal.Check = "provider-id-critical"
	// checkProviderIDEncoding: the value is not one canonical DER UTF8String. A GCEInstance
	// is not one.
	checkProviderIDEncoding refusal.Check = "provider-id-encoding"
	// checkProviderIDSize: the text is empty or longer than MaxProviderIDSize.
	checkProviderIDSize refusal.Check = "provider-id-size"
	// checkProviderIDText: the text is not valid UTF-8, has a character that does not print
	// or changes how others print (controls, line and paragraph separators, spaces other
	// than U+0020, and format characters such as marks that change the direction of text:
	// everything that unicode.IsPrint refuses), or begins or ends with a space.
	checkProviderIDText refusal.Check = "provider-id-text"
)

// MarshalProviderID encodes a provider ID, such as "gce://project/zone/name", as the value
// of the extension [KubernetesNodeProviderIdentifier]: a DER UTF8String (Cluster API kubelet
// authentication, "OIDs"; the encoding is this SDK's choice, as the document gives none). id
// must be 1 to [MaxProviderIDSize] bytes of printable UTF-8, or the error is
// the check "provider-id-size" or "provider-id-text".
func MarshalProviderID(id string) ([]byte, error) {
	if err := checkProviderID(id); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	addUTF8(&b, id)
	return b.Bytes()
}

// UnmarshalProviderID decodes what [MarshalProviderID] writes and refuses everything
// else with the check "provider-id-encoding", "provider-id-size" or "provider-id-text".
func UnmarshalProviderID(der []byte) (string, error) {
	input, id := cryptobyte.String(der), ""
	if !readUTF8(&input, &id) || !input.Empty() {
		return "", checkProviderIDEncoding.Refuse("", "one UTF8String in DER")
	}
	if err := checkProviderID(id); err != nil {
		return "", err
	}
	return id, nil
}

// ProviderIDExtension makes the extension that carries a provider ID in a request or a
// certificate. It is not critical: software that does not know it must ignore it. Errors are
// as for [MarshalProviderID].
func ProviderIDExtension(id string) (pkix.Extension, error) {
	value, err := MarshalProviderID(id)
	if err != nil {
		return pkix.Extension{}, err
	}
	name, _ := KubernetesNodeProviderIdentifier.ASN1()
	return pkix.Extension{Id: name, Value: value}, nil
}

// ParseProviderID finds the provider ID among the extensions of a request or a certificate: the
// extension must be present ([CheckProviderIDMissing]) and the only one (the check
// "provider-id-duplicate"), must not be critical (the check "provider-id-critical"), and must
// hold what [UnmarshalProviderID] accepts. In a request the provider ID is the owner's claim, in
// a certificate the issuer vouches for it.
func ParseProviderID(extensions []pkix.Extension) (string, error) {
	provides := func(e pkix.Extension) bool { return KubernetesNodeProviderIdentifier.Equal(e.Id) }
	switch n := slices.IndexFunc(extensions, provides); {
	case n < 0:
		return "", CheckProviderIDMissing.Refuse("", "the extension with a provider ID")
	case slices.ContainsFunc(extensions[n+1:], provides):
		return "", checkProviderIDDuplicate.Refuse("the extension twice", "once")
	case extensions[n].Critical:
		return "", checkProviderIDCritical.Refuse("a critical extension", "one that is not")
	default:
		return UnmarshalProviderID(extensions[n].Value)
	}
}

// checkProviderID requires a text that people can read unambiguously.
func checkProviderID(id string) error {
	if id == "" || len(id) > MaxProviderIDSize {
		return checkProviderIDSize.Refuse(strconv.Itoa(len(id))+" bytes", "1 to "+strconv.Itoa(MaxProviderIDSize))
	}
	if !names.ValidText(id, MaxProviderIDSize) || strings.Trim(id, " ") != id {
		return checkProviderIDText.Refuse(id, "printable UTF-8 without a space at either end")
	}
	return nil
}
