// Package der reads and writes the parts of nodeattest's DER messages: strictly, with a size
// limit on everything that comes from outside, and with one form of error.
package der

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// Limits on the messages. Anything over them is refused before it is examined.
const (
	// MaxEvidenceSize bounds the DER of an attestation bundle, in bytes.
	MaxEvidenceSize = 256 << 10
	// MaxChallengeSize bounds the DER of a Challenge, in bytes.
	MaxChallengeSize = 16 << 10
	// MaxClusterIDSize bounds a cluster ID, in bytes of UTF-8.
	MaxClusterIDSize = 128
	// MaxSignerNameSize bounds a signer name, in bytes: the limit that Kubernetes sets.
	MaxSignerNameSize = 571
	// MaxRequesterSize bounds spec.username in a Binding, in bytes of UTF-8.
	MaxRequesterSize = 1024
	// MaxPublicSize bounds a TPMT_PUBLIC and a SubjectPublicKeyInfo, in bytes.
	MaxPublicSize = 4 << 10

	// MaxCertificates bounds the number of certificates in a bundle.
	MaxCertificates = 8
	// MaxCertificateSize bounds one certificate, in bytes of DER.
	MaxCertificateSize = 16 << 10
	// MaxNVChain bounds the total contents of the NV indexes of an EK chain, in bytes.
	MaxNVChain = 64 << 10

	// MaxUnixSeconds is 9999-12-31T23:59:59Z.
	MaxUnixSeconds = 253402300799
)

// Checks on the messages' encoding.
const (
	// CheckEncoding: a message is not the DER that the wire format requires, or a value is out
	// of range.
	CheckEncoding refusal.Check = "message-encoding"
	// CheckSize: a message is over its size limit.
	CheckSize refusal.Check = "message-size"
	// CheckVersion: a message states a version other than 1.
	CheckVersion refusal.Check = "message-version"
)

// Context-specific tags, which cryptobyte can build but does not define as constants.
const (
	Context0            asn1.Tag = 0x80 // [0], primitive
	Context1Constructed asn1.Tag = 0xa1 // [1], constructed
)

// Fault is an encoding fault in one field of one message.
func Fault(message, field, want string) error {
	return &refusal.Error{Check: CheckEncoding, Got: "a bad " + message + " " + field, Want: want}
}

// OpenSequence checks the size limit and that der is one SEQUENCE with nothing after it.
func OpenSequence(message string, der []byte, maxSize int) (cryptobyte.String, error) {
	if len(der) > maxSize {
		return nil, &refusal.Error{Check: CheckSize, Got: strconv.Itoa(len(der)) + " bytes of " + message,
			Want: "at most " + strconv.Itoa(maxSize)}
	}
	in, body := cryptobyte.String(der), cryptobyte.String(nil)
	switch whole := in.ReadASN1(&body, asn1.SEQUENCE); {
	case !whole && IsPEM(der):
		return nil, &refusal.Error{Check: CheckEncoding, Got: "a " + message + " in PEM", Want: "its DER"}
	case !whole:
		return nil, Fault(message, "frame", "a DER SEQUENCE")
	case !in.Empty():
		return nil, Fault(message, "frame", "no bytes after the SEQUENCE")
	}
	return body, nil
}

// KeyIdentifier identifies a public key by the first 160 bits of the SHA-256 of its BIT
// STRING's content (RFC 7093, 2, method 1).
func KeyIdentifier(spki []byte) ([]byte, error) {
	input := cryptobyte.String(spki)
	var content, algorithm cryptobyte.String
	var key []byte
	if !input.ReadASN1(&content, asn1.SEQUENCE) ||
		!content.ReadASN1Element(&algorithm, asn1.SEQUENCE) ||
		!content.ReadASN1BitStringAsBytes(&key) {
		return nil, errors.New("a malformed SubjectPublicKeyInfo")
	}
	digest := sha256.Sum256(key)
	return digest[:20], nil
}

// CheckText checks the size of a text and that it is valid UTF-8.
func CheckText(message, field, v string, minSize, maxSize int) error {
	if len(v) < minSize || len(v) > maxSize || !utf8.ValidString(v) {
		return Fault(message, field, "UTF-8 of "+strconv.Itoa(minSize)+" to "+strconv.Itoa(maxSize)+" bytes")
	}
	return nil
}

// MarshalOctets writes a message that is an OCTET STRING of 1 to most bytes.
func MarshalOctets(message string, v []byte, most int) ([]byte, error) {
	if err := checkSize(message, "bytes", v, 1, most); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1OctetString(v)
	return b.Bytes()
}

// ParseOctets reads exactly what [MarshalOctets] writes. The result shares memory with data.
func ParseOctets(message string, data []byte, most int) ([]byte, error) {
	var v cryptobyte.String
	if s := cryptobyte.String(data); !s.ReadASN1(&v, asn1.OCTET_STRING) || !s.Empty() {
		return nil, Fault(message, "frame", "one OCTET STRING")
	}
	return v, checkSize(message, "bytes", v, 1, most)
}

func checkSize(message, field string, v []byte, minSize, maxSize int) error {
	if len(v) < minSize || len(v) > maxSize {
		return Fault(message, field, strconv.Itoa(minSize)+" to "+strconv.Itoa(maxSize)+" bytes")
	}
	return nil
}

// AddText writes a UTF8String.
func AddText(b *cryptobyte.Builder, v string) { AddTagged(b, asn1.UTF8String, []byte(v)) }

// AddTagged writes v under the given tag. A short v needs no builder of its own.
func AddTagged(b *cryptobyte.Builder, tag asn1.Tag, v []byte) {
	if len(v) < 0x80 && tag&0x1f != 0x1f {
		b.AddUint16(uint16(tag)<<8 | uint16(len(v)))
		b.AddBytes(v)
		return
	}
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(v) })
}

// IsPEM reports whether b looks like PEM, for the error message where DER is expected.
func IsPEM(b []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("-----BEGIN "))
}

// TrimNVCertificate removes what vendors put around a certificate: the header of a
// TCG_PCCLIENT_STORED_CERT with a full certificate (tag 0x1001, type 0, 16 bits of size, tag
// 0x1002; TCG PC Client Specific Implementation Specification for Conventional BIOS 1.21,
// 7.3.2; some omit the inner tag), and padding with 0x00 or 0xff if the index is larger than
// its content.
func TrimNVCertificate(data []byte) ([]byte, error) {
	if sized, ok := bytes.CutPrefix(data, []byte{0x10, 0x01, 0x00}); ok {
		in, stored := cryptobyte.String(sized), cryptobyte.String(nil)
		if !in.ReadUint16LengthPrefixed(&stored) {
			return nil, fmt.Errorf("header is cut short, or states more than the %d bytes that there are", len(data))
		}
		if err := CheckPadding(in); err != nil {
			return nil, err
		}
		data = bytes.TrimPrefix(stored, []byte{0x10, 0x02})
	}
	if len(data) != 0 && CheckPadding(data) == nil {
		return nil, fmt.Errorf("%d bytes of padding: no certificate has been written yet", len(data))
	}
	rest := cryptobyte.String(data)
	var der cryptobyte.String
	if !rest.ReadASN1Element(&der, asn1.SEQUENCE) {
		return nil, fmt.Errorf("%d bytes that do not begin with a DER SEQUENCE", len(data))
	}
	if err := CheckPadding(rest); err != nil {
		return nil, err
	}
	return der, nil
}

// CheckPadding refuses anything but all 0x00 or all 0xff.
func CheckPadding(b []byte) error {
	for i, c := range b {
		if c != b[0] || (c != 0x00 && c != 0xff) {
			return fmt.Errorf("byte 0x%02x at %d of the %d bytes after it is not padding", c, i, len(b))
		}
	}
	return nil
}
