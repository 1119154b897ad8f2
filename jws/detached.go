package jws

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// detachedDots stand between the header and the signature, where the payload was.
const detachedDots = ".."

// macLength is the length of a MAC in base64url.
const macLength = (sha256.Size*8 + 5) / 6

// Detached is a payload that is encoded once, and then signed or verified with many
// keys. It is safe for concurrent use. The zero value is an empty payload.
type Detached struct {
	encoded []byte // base64url
}

// NewDetached encodes a payload, which it does not keep. A payload longer than
// 2,097,152 bytes is refused with "payload-size".
func NewDetached(payload []byte) (*Detached, error) {
	if len(payload) > maxPayloadSize {
		return nil, &Error{Check: checkPayloadSize, Got: bytesText(len(payload)), Want: "at most " + bytesText(maxPayloadSize)}
	}
	encoded := make([]byte, encoding.EncodedLen(len(payload)))
	encoding.Encode(encoded, payload)
	return &Detached{encoded: encoded}, nil
}

// Sign signs the payload for discovery: the compact form (RFC 7515, section 7.1) with
// HS256 and the header {"alg":"HS256","kid":"<keyID>"}, with its payload removed (appendix F).
// That is what Kubernetes' bootstrapsigner writes into cluster-info as jws-kubeconfig-<keyID>,
// byte for byte (k8s.io/cluster-bootstrap, token/jws).
//
// The key has at least 32 bytes, the size of HS256's hash output (RFC 7518, section 3.2). There
// is one exception, the bootstrap token, whose form Kubernetes sets: for a key ID of 6
// characters, a secret of 16, all of them a to z and 0 to 9. Drawn at random, such a secret has 82
// bits, which cannot be searched, and the token ends, by default after a day. Any other key is
// refused, however it was drawn.
//
// The errors are [CheckKeyID] and "hmac-key-size".
func (d *Detached) Sign(keyID string, key []byte) (string, error) {
	signature, err := d.sign(keyID, key)
	return string(signature), err
}

// sign checks the key ID and the key, and signs.
func (d *Detached) sign(keyID string, key []byte) ([]byte, error) {
	if err := checkKeyID(keyID); err != nil {
		return nil, err
	}
	if len(key) < sha256.Size && !isBootstrapToken(keyID, key) {
		return nil, &Error{Check: checkHMACKeySize, Got: bytesText(len(key)), Want: wantHMACKey}
	}
	return d.mac(keyID, key), nil
}

// wantHMACKey describes the keys of detached signatures.
const wantHMACKey = "32 bytes or more, or a bootstrap token's secret: 16 characters of a-z and 0-9, for a key ID of 6"

// isBootstrapToken reports whether ID and secret have the form of a bootstrap token
// (k8s.io/cluster-bootstrap, token/api, BootstrapTokenPattern).
func isBootstrapToken(id string, secret []byte) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return len(id) == 6 && len(secret) == 16 && !strings.ContainsFunc(id, other) && !bytes.ContainsFunc(secret, other)
}

// mac returns the header, two dots and the MAC.
func (d *Detached) mac(keyID string, key []byte) []byte {
	if d == nil {
		d = &Detached{}
	}
	signature := make([]byte, 0, encoding.EncodedLen(headerFrame+len(keyID))+len(detachedDots)+macLength)
	signature = appendHeader(signature, hs256, keyID, "")
	signature = append(signature, '.')
	mac := hmac.New(sha256.New, key)
	mac.Write(signature)
	mac.Write(d.encoded)
	var sum [sha256.Size]byte
	signature = append(signature, '.')
	return encoding.AppendEncode(signature, mac.Sum(sum[:0]))
}

// Verify checks that signature is, to the byte, what [Detached.Sign] returns for the key ID
// and key. As in Kubernetes, no other spelling of the header is accepted. MACs are compared
// in constant time.
//
// The errors are [CheckKeyID], "hmac-key-size", "form", "base64url", [CheckHeader], "critical-header",
// [CheckAlgorithm], "jws-signature-size" and "jws-signature".
func (d *Detached) Verify(signature, keyID string, key []byte) error {
	want, err := d.sign(keyID, key)
	if err != nil {
		return err
	}
	if len(signature) == len(want) && subtle.ConstantTimeCompare([]byte(signature), want) == 1 {
		return nil
	}
	return explain(signature, keyID)
}

// explain says why a detached signature is not the one for this key ID and some key.
func explain(signature, keyID string) error {
	encoded, mac, ok := strings.Cut(signature, detachedDots)
	if !ok || strings.Contains(encoded, ".") || strings.Contains(mac, ".") {
		return &Error{Check: checkForm, Want: "header, two dots, signature"}
	}
	if len(encoded) > encoding.EncodedLen(maxHeaderSize) {
		return &Error{Check: CheckHeader, Got: bytesText(len(encoded)), Want: "a header of this key ID"}
	}
	text, err := decodeSegment(nil, []byte(encoded))
	if err != nil {
		return &Error{Check: checkBase64, Got: "the header", Err: err}
	}
	h, err := parseHeader(text)
	switch {
	case err != nil:
		return err
	case string(h.algorithm) != string(hs256):
		return &Error{Check: CheckAlgorithm, Got: string(h.algorithm), Want: string(hs256)}
	case h.keyID != keyID:
		return &Error{Check: CheckKeyID, Got: h.keyID, Want: keyID}
	case encoded != string(appendHeader(nil, hs256, keyID, "")):
		return &Error{Check: CheckHeader, Got: string(text), Want: "only the members alg and kid, in this order and without space"}
	case len(mac) != macLength:
		return &Error{Check: checkSignatureSize, Got: bytesText(len(mac)) + " of base64url", Want: bytesText(macLength)}
	}
	if _, err := decodeSegment(nil, []byte(mac)); err != nil {
		return &Error{Check: checkBase64, Got: "the signature", Err: err}
	}
	return &Error{Check: checkSignature, Got: "a signature over other bytes or with another key", Want: "that of " + keyID}
}

// headerFrame is the length of a detached signature's header without the key ID.
const headerFrame = len(`{"alg":"HS256","kid":""}`)

// maxHeaderSize is the length of the longest header of a detached signature: each byte of the
// key ID takes at most six.
const maxHeaderSize = headerFrame + 6*MaxKeyIDSize
