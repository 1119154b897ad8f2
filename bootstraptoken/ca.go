package bootstraptoken

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	pemType = "CERTIFICATE"
	pemDash = "-----"
	wantCA  = "CA certificates in PEM"
)

// ParseCAs reads a CA bundle: one to 64 PEM blocks of type CERTIFICATE, each a CA
// certificate (basicConstraints with CA, and keyCertSign if there is a keyUsage), without
// duplicates. The error is "ca-bundle".
//
// It is strict, so that every other reader finds the same certificates in a bundle
// (crypto/x509, k8s.io/client-go/util/cert, OpenSSL): each BEGIN and END is a line of its own,
// with canonical base64 in lines of 64 characters between them (RFC 7468, section 3,
// "stricttextualmsg"). Lines end with LF or CRLF. Lines of text may appear before, between and
// after the blocks, as OpenSSL writes them (RFC 7468, section 5.2), but never with five dashes
// in a row, nor with a NUL, after which OpenSSL finds nothing. A block of another type, such
// as a private key, is refused, whereas Kubernetes skips it.
//
// Validity periods are not checked: an expired certificate is read, and verifies nothing.
func ParseCAs(bundle []byte) ([]*x509.Certificate, error) {
	if len(bundle) > maxCABundleSize {
		return nil, caError(strconv.Itoa(len(bundle))+" bytes", nil)
	}
	if bytes.IndexByte(bundle, 0) >= 0 {
		return nil, caError("a NUL", nil)
	}
	rest := pemBlock.ReplaceAllFunc(bundle, func(block []byte) []byte { return bytes.Repeat([]byte("\n"), bytes.Count(block, []byte("\n"))) })
	if before, _, found := bytes.Cut(rest, []byte(pemDash)); found {
		line := strconv.Itoa(1 + bytes.Count(before, []byte("\n")))
		return nil, caError("five dashes in line "+line+", which is not the BEGIN or END of a certificate's block", nil)
	}
	var cas []*x509.Certificate
	for _, block := range pemBlock.FindAll(bundle, -1) {
		ca, err := parseCA(block)
		switch {
		case err != nil:
			return nil, err
		case len(cas) == maxCAs:
			return nil, caError("more than "+strconv.Itoa(maxCAs)+" certificates", nil)
		case slices.ContainsFunc(cas, ca.Equal):
			return nil, caError("the certificate of "+ca.Subject.String()+" twice", nil)
		}
		cas = append(cas, ca)
	}
	if len(cas) == 0 {
		return nil, caError("no certificate", nil)
	}
	return cas, nil
}

// pemBlock matches a certificate's block, with its BEGIN and END on lines of their own.
var pemBlock = regexp.MustCompile(`(?m)^-----BEGIN CERTIFICATE-----\r?\n(?:[^-]*\n)?-----END CERTIFICATE-----(?:\r?\n|\z)`)

// parseCA reads a block, whose lines end with LF or CRLF. Otherwise it accepts only one
// spelling.
func parseCA(text []byte) (*x509.Certificate, error) {
	text = append(bytes.TrimSuffix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n")), '\n')
	block, _ := pem.Decode(text)
	if block == nil || !bytes.Equal(pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: block.Bytes}), text) {
		return nil, caError("a malformed block", nil)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return nil, caError("a malformed certificate", err)
	case !cert.IsCA:
		return nil, caError("the certificate of "+cert.Subject.String()+", which is no CA", nil)
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, caError("the certificate of "+cert.Subject.String()+", which may not sign certificates", nil)
	}
	return cert, nil
}

func caError(got string, err error) error {
	return &Error{Check: checkCA, Got: got, Want: wantCA, Err: err}
}

// marshalCAs writes a bundle that [ParseCAs] reads, or nothing if there are no CAs.
func marshalCAs(cas []*x509.Certificate) ([]byte, error) {
	var bundle []byte
	for i, ca := range cas {
		if ca == nil {
			return nil, caError("nothing as certificate "+strconv.Itoa(i), nil)
		}
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: ca.Raw})...)
	}
	if len(cas) > 0 {
		if _, err := ParseCAs(bundle); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}

const (
	pinPrefix = "sha256:"
	wantPin   = "sha256: and 64 hexadecimal digits"
)

// Pin is the SHA-256 digest of a CA certificate's SubjectPublicKeyInfo, in DER (RFC 7469,
// section 2.4). A new certificate for the same key has the same pin. The zero Pin is refused
// wherever pins are needed.
type Pin [sha256.Size]byte

// ParsePin reads a pin in the form that kubeadm prints and accepts in
// --discovery-token-ca-cert-hash: "sha256:" and 64 hexadecimal digits, in either case
// (cmd/kubeadm/app/util/pubkeypin). Otherwise, and for a digest of all zeros, the error is
// "ca-pin".
func ParsePin(s string) (Pin, error) {
	if len(s) != len(pinPrefix)+hex.EncodedLen(sha256.Size) {
		return Pin{}, &Error{Check: checkPin, Got: strconv.Itoa(len(s)) + " bytes", Want: wantPin}
	}
	var p Pin
	algorithm, digits := s[:len(pinPrefix)], s[len(pinPrefix):]
	_, err := hex.Decode(p[:], []byte(digits))
	switch {
	case !strings.EqualFold(algorithm, pinPrefix):
		return Pin{}, &Error{Check: checkPin, Got: refusal.Quote(algorithm), Want: wantPin}
	case err != nil:
		return Pin{}, &Error{Check: checkPin, Got: refusal.Quote(digits), Want: wantPin, Err: err}
	case p.IsZero():
		return Pin{}, &Error{Check: checkPin, Got: "a digest of zeros", Want: wantPin}
	}
	return p, nil
}

// pinOf returns the pin of a certificate's key.
func pinOf(cert *x509.Certificate) Pin { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

// IsZero reports whether p is the zero Pin.
func (p Pin) IsZero() bool { return p == Pin{} }

// String returns the pin as kubeadm prints it: "sha256:" and 64 lowercase hexadecimal digits.
func (p Pin) String() string { return pinPrefix + hex.EncodeToString(p[:]) }

// MarshalText returns what [Pin.String] does.
func (p Pin) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what [ParsePin] accepts.
func (p *Pin) UnmarshalText(text []byte) (err error) {
	if p == nil {
		return refusal.Config("Pin", "", "one to read into")
	}
	*p, err = ParsePin(string(text))
	return err
}
