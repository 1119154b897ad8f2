package bootstraptoken

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	pemType = "CERTIFICATE"
	pemLine = 64 // characters
)

// ParseCAs reads a CA bundle: one to 64 PEM blocks of type CERTIFICATE, each a CA
// certificate (basicConstraints with CA, and keyCertSign if there is a keyUsage). One that is
// repeated is returned once. The error is "ca-bundle".
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
	switch {
	case len(bundle) > maxCABundleSize:
		return nil, caError(strconv.Itoa(len(bundle))+" bytes", nil)
	case bytes.HasPrefix(bundle, []byte("\ufeff")):
		return nil, caError("a byte order mark", nil)
	case bytes.IndexByte(bundle, 0) >= 0:
		return nil, caError("a NUL, as in UTF-16", nil)
	}
	rest := pemBlock().ReplaceAllFunc(bundle, func(block []byte) []byte { return bytes.Repeat([]byte("\n"), bytes.Count(block, []byte("\n"))) })
	if before, _, found := bytes.Cut(rest, []byte("-----")); found {
		n := bytes.Count(before, []byte("\n"))
		why := ", which is not the BEGIN or END of a certificate's block"
		if line := bytes.TrimSuffix(bytes.Split(rest, []byte("\n"))[n], []byte("\r")); len(bytes.TrimSpace(line)) != len(line) {
			why = ", which begins or ends with a space"
		}
		return nil, caError("five dashes in line "+strconv.Itoa(n+1)+why, nil)
	}
	var cas []*x509.Certificate
	for _, block := range pemBlock().FindAll(bundle, -1) {
		ca, err := parseCA(block)
		switch {
		case err != nil:
			return nil, err
		case slices.ContainsFunc(cas, ca.Equal):
			continue
		case len(cas) == maxCAs:
			return nil, caError("more than "+strconv.Itoa(maxCAs)+" certificates", nil)
		}
		cas = append(cas, ca)
	}
	if len(cas) == 0 {
		return nil, caError("no certificate", nil)
	}
	return cas, nil
}

// pemBlock matches a certificate's block, with its BEGIN and END on lines of their own.
var pemBlock = pattern(`(?m)^-----BEGIN CERTIFICATE-----\r?\n(?:[^-]*\n)?-----END CERTIFICATE-----(?:\r?\n|\z)`)

// parseCA reads a block in its canonical spelling; its lines may end with LF or CRLF.
func parseCA(text []byte) (*x509.Certificate, error) {
	text = append(bytes.TrimSuffix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n")), '\n')
	block, _ := pem.Decode(text)
	if block == nil || !bytes.Equal(pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: block.Bytes}), text) {
		return nil, caError(pemFault(string(text)), nil)
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

// pemFault describes the fault of a block in another spelling than the canonical one.
func pemFault(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines[:len(lines)-1] {
		last := i == len(lines)-2
		switch {
		case i == 0:
		case strings.TrimSpace(line) != line:
			return "a block whose line " + strconv.Itoa(i+1) + " begins or ends with a space"
		case len(line) > pemLine || len(line) < pemLine && !last:
			return "a block whose line " + strconv.Itoa(i+1) + " has " + strconv.Itoa(len(line)) + " characters, not " + strconv.Itoa(pemLine)
		}
	}
	return "a malformed block"
}

func caError(got string, err error) error {
	return &Error{Check: checkCA, Got: got, Want: "CA certificates in PEM", Err: err}
}

// nameConstraints is the extension of RFC 5280, section 4.2.1.10.
var nameConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}

// vouched reports whether a CA of a bundle is pinned, or verifies up to a pinned one as a CA of
// servers. Used as a trust anchor, it would escape the name constraints of the CAs above it: so a
// CA below name constraints is refused, and constrained names it.
func vouched(ca *x509.Certificate, pinned, bundle []*x509.Certificate, now time.Time) (ok bool, constrained string) {
	if slices.ContainsFunc(pinned, ca.Equal) {
		return true, ""
	}
	chains, err := dn.OneSpelling([]*x509.Certificate{ca})[0].Verify(x509.VerifyOptions{
		Roots: poolOf(dn.OneSpelling(pinned)), Intermediates: poolOf(dn.OneSpelling(bundle)), CurrentTime: now})
	if err != nil {
		return false, ""
	}
	for _, chain := range chains {
		limited := false
		for below, issuer := range chain[1:] {
			limits := func(e pkix.Extension) bool { return e.Id.Equal(nameConstraints) }
			switch {
			case slices.ContainsFunc(issuer.Extensions, limits):
				constrained = "the CA " + ca.Subject.String() + ", which is below name constraints of the CA " + issuer.Subject.String()
				limited = true
			case issuer.MaxPathLen >= 0 && below >= issuer.MaxPathLen: // more CAs than its path length allows
				limited = true
			}
		}
		if !limited {
			return true, ""
		}
	}
	return false, constrained
}

// marshalCAs writes a bundle that [ParseCAs] reads, of at least one CA.
func marshalCAs(cas []*x509.Certificate) ([]byte, error) {
	var bundle []byte
	for i, ca := range cas {
		if ca == nil {
			return nil, caError("nothing as certificate "+strconv.Itoa(i), nil)
		}
		if slices.ContainsFunc(cas[:i], ca.Equal) {
			continue
		}
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: ca.Raw})...)
	}
	_, err := ParseCAs(bundle)
	return bundle, err
}

const (
	pinPrefix = "sha256:"
	wantPin   = "sha256: and 64 hexadecimal digits"
)

// Pin is the SHA-256 digest of a CA certificate's SubjectPublicKeyInfo, in DER (RFC 7469,
// section 2.4). A new certificate for the same key has the same pin. A pin stands for the CAs
// in the same bundle that verify up to its own, too; see [Discover]. The zero Pin is refused
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
