package attest

import (
	"strconv"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Limits of the messages. What is over them is refused before it is looked at.
const (
	// MaxEvidenceSize bounds the DER of an attestation bundle, in bytes.
	MaxEvidenceSize = 256 << 10
	// MaxChallengeSize bounds the DER of a Challenge, in bytes.
	MaxChallengeSize = 16 << 10
	// MaxClusterIDSize bounds a cluster ID, in bytes of UTF-8.
	MaxClusterIDSize = 128
	// MaxSignerNameSize bounds a signer name, in bytes: the limit that Kubernetes
	// sets.
	MaxSignerNameSize = 571
	// MaxRequesterSize bounds spec.username in a Binding, in bytes of UTF-8.
	MaxRequesterSize = 1024
	// MaxPublicSize bounds a TPMT_PUBLIC and a SubjectPublicKeyInfo, in bytes.
	MaxPublicSize = 4 << 10

	maxUnixSeconds = 253402300799 // 9999-12-31T23:59:59Z
)

// Checks of the messages' encoding.
const (
	// CheckEncoding: a message is not the DER that the wire format asks for, or
	// a value is outside its range.
	CheckEncoding Check = "message-encoding"
	// CheckSize: a message is over its size limit.
	CheckSize Check = "message-size"
	// CheckVersion: a message states a version other than 1.
	CheckVersion Check = "message-version"
)

// Context-specific tags, which cryptobyte can build but not as constants.
const (
	tagContext0            asn1.Tag = 0x80 // [0], primitive
	tagContext1Constructed asn1.Tag = 0xa1 // [1], constructed
)

// fault is a fault of encoding in one field of one message.
func fault(message, field, want string) error {
	return &Error{Check: CheckEncoding, Got: "a bad " + message + " " + field, Want: want}
}

// openSequence checks the size cap and that der is one SEQUENCE and nothing
// behind it.
func openSequence(message string, der []byte, maxSize int) (cryptobyte.String, error) {
	if len(der) > maxSize {
		return nil, &Error{Check: CheckSize, Got: strconv.Itoa(len(der)) + " bytes of " + message,
			Want: "at most " + strconv.Itoa(maxSize)}
	}
	in, body := cryptobyte.String(der), cryptobyte.String(nil)
	if !in.ReadASN1(&body, asn1.SEQUENCE) {
		if isPEM(der) {
			return nil, &Error{Check: CheckEncoding, Got: "a " + message + " in PEM", Want: "its DER"}
		}
		return nil, fault(message, "frame", "a DER SEQUENCE")
	}
	if !in.Empty() {
		return nil, fault(message, "frame", "no bytes behind the SEQUENCE")
	}
	return body, nil
}

// readVersion reads INTEGER (1).
func readVersion(message string, s *cryptobyte.String) error {
	var v int64
	if !s.ReadASN1Integer(&v) {
		return fault(message, "version", "a DER INTEGER")
	}
	if v != 1 {
		return &Error{Check: CheckVersion, Got: strconv.FormatInt(v, 10), Want: "1"}
	}
	return nil
}

// readRoad reads ENUMERATED { ak(0), ek(1) }.
func readRoad(message string, s *cryptobyte.String) (Road, error) {
	var v int
	if !s.ReadASN1Enum(&v) || !Road(v).valid() {
		return 0, fault(message, "road", "ENUMERATED 0 or 1")
	}
	return Road(v), nil
}

// readText reads a UTF8String of minSize to maxSize bytes.
func readText(message, field string, s *cryptobyte.String, minSize, maxSize int) (string, error) {
	var v cryptobyte.String
	if !s.ReadASN1(&v, asn1.UTF8String) {
		return "", fault(message, field, "a UTF8String")
	}
	if err := checkText(message, field, string(v), minSize, maxSize); err != nil {
		return "", err
	}
	return string(v), nil
}

func checkText(message, field, v string, minSize, maxSize int) error {
	if len(v) < minSize || len(v) > maxSize || !utf8.ValidString(v) {
		return fault(message, field, "UTF-8 of "+strconv.Itoa(minSize)+" to "+strconv.Itoa(maxSize)+" bytes")
	}
	return nil
}

// readOctets reads a primitive string of the given tag and of minSize to
// maxSize bytes. The result shares memory with s.
func readOctets(message, field string, s *cryptobyte.String, tag asn1.Tag, minSize, maxSize int) ([]byte, error) {
	var v cryptobyte.String
	if !s.ReadASN1(&v, tag) || len(v) < minSize || len(v) > maxSize {
		return nil, fault(message, field, "an OCTET STRING of "+strconv.Itoa(minSize)+" to "+strconv.Itoa(maxSize)+" bytes")
	}
	return v, nil
}

// readFixed reads an OCTET STRING that fills out exactly.
func readFixed(message, field string, s *cryptobyte.String, out []byte) error {
	v, err := readOctets(message, field, s, asn1.OCTET_STRING, len(out), len(out))
	if err != nil {
		return err
	}
	copy(out, v)
	return nil
}

// readInt reads an INTEGER of 0 to limit.
func readInt(message, field string, s *cryptobyte.String, limit int64) (int64, error) {
	var v int64
	if !s.ReadASN1Integer(&v) || v < 0 || v > limit {
		return 0, fault(message, field, "an INTEGER of 0 to "+strconv.FormatInt(limit, 10))
	}
	return v, nil
}

func addText(b *cryptobyte.Builder, v string) {
	b.AddASN1(asn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte(v)) })
}

func addTagged(b *cryptobyte.Builder, tag asn1.Tag, v []byte) {
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(v) })
}
