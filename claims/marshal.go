package claims

import (
	"encoding/json"
	"strings"
)

// escapes turns the escapes of encoding/json into those that it wrote before Go 1.22. A
// backslash in the text is two, and so begins none of the others.
var escapes = strings.NewReplacer(`\\`, `\\`, `\b`, `\u0008`, `\f`, `\u000c`, `\ufffd`, "\ufffd")

// Marshal encodes the claims as kube-apiserver 1.36 encodes them, byte for byte: members
// in the order of their names, absent ones left out, "aud" always an array, and strings
// with the escapes of Go's encoding/json before 1.22: \u003c, \u003e and \u0026 for the
// characters of HTML, \u0008 and \u000c, \u2028 and \u2029. Bytes that are no UTF-8
// become U+FFFD, as they do there. A claim set longer than [MaxClaimsSize] is
// [CheckSize].
func (c *Claims) Marshal() ([]byte, error) {
	set := struct {
		Audiences  []string    `json:"aud,omitempty"`
		Expiry     NumericDate `json:"exp,omitzero"`
		IssuedAt   NumericDate `json:"iat,omitzero"`
		Issuer     string      `json:"iss,omitempty"`
		ID         string      `json:"jti,omitempty"`
		Kubernetes *Private    `json:"kubernetes.io,omitempty"`
		*LegacyPrivate
		NotBefore NumericDate `json:"nbf,omitzero"`
		Subject   string      `json:"sub,omitempty"`
	}{c.Audiences, c.Expiry, c.IssuedAt, c.Issuer, c.ID, nil, c.Legacy, c.NotBefore, c.Subject}
	if c.Legacy == nil || c.Kubernetes != (Private{}) {
		set.Kubernetes = &c.Kubernetes
	}
	payload, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	payload = []byte(escapes.Replace(string(payload)))
	if err := checkSize(payload); err != nil {
		return nil, err
	}
	return payload, nil
}
