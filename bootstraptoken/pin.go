package bootstraptoken

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckPin: a text is not the pin of a CA, or a Pin is the zero value.
const CheckPin Check = "ca-pin"

const (
	pinPrefix = "sha256:"
	wantPin   = "sha256: and 64 hexadecimal digits"
)

// Pin is the SHA-256 digest of a CA certificate's SubjectPublicKeyInfo, DER (RFC 7469,
// section 2.4). A new certificate for the same key has the same pin. The zero Pin is
// refused wherever pins are needed.
type Pin [sha256.Size]byte

// ParsePin reads a pin in the form that kubeadm prints and takes in
// --discovery-token-ca-cert-hash: "sha256:" and 64 hexadecimal digits, in either case
// (cmd/kubeadm/app/util/pubkeypin). Else, and for a digest of zeros, the error is
// [CheckPin].
func ParsePin(s string) (Pin, error) {
	if len(s) != len(pinPrefix)+hex.EncodedLen(sha256.Size) {
		return Pin{}, &Error{Check: CheckPin, Got: strconv.Itoa(len(s)) + " bytes", Want: wantPin}
	}
	algorithm, digits := s[:len(pinPrefix)], s[len(pinPrefix):]
	if !strings.EqualFold(algorithm, pinPrefix) {
		return Pin{}, &Error{Check: CheckPin, Got: refusal.Quote(algorithm), Want: wantPin}
	}
	var p Pin
	if _, err := hex.Decode(p[:], []byte(digits)); err != nil {
		return Pin{}, &Error{Check: CheckPin, Got: refusal.Quote(digits), Want: wantPin, Err: err}
	}
	if p.IsZero() {
		return Pin{}, &Error{Check: CheckPin, Got: "a digest of zeros", Want: wantPin}
	}
	return p, nil
}

// PinOf returns the pin of a certificate's key.
func PinOf(cert *x509.Certificate) Pin { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

// IsZero reports whether p is the zero Pin.
func (p Pin) IsZero() bool { return p == Pin{} }

// String returns the pin as kubeadm prints it: "sha256:" and 64 lower case hexadecimal
// digits.
func (p Pin) String() string { return pinPrefix + hex.EncodeToString(p[:]) }

// MarshalText returns what [Pin.String] does.
func (p Pin) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what [ParsePin] takes.
func (p *Pin) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePin(string(text))
	return err
}
