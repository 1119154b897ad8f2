package tpmcert

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/der"
)

// maxPEMSize bounds what ParseCertificatesPEM reads, in bytes.
const maxPEMSize = 1 << 20

const (
	certificateBegin = "-----BEGIN CERTIFICATE-----"
	certificateEnd   = "-----END CERTIFICATE-----"
)

// ParseCertificatesPEM parses certificates, in order, from PEM blocks of type CERTIFICATE:
// roots and intermediates for an [Issuer], or a chain for tpm.ProverOptions (with
// [CertificatesDER]). Between the blocks there may be empty lines and lines that begin with
// #, and nothing else, so that no certificate is silently skipped: other blocks, PEM headers,
// text, and an unterminated block are errors that name the line. Lines end with LF or CR LF;
// the last one may also end with the input. There must be at least one certificate, each of
// at most 16 KiB, in at most 1 MiB.
func ParseCertificatesPEM(b []byte) ([]*x509.Certificate, error) {
	if len(b) > maxPEMSize {
		return nil, fmt.Errorf("tpmcert: certificates in PEM: %d bytes, at most %d", len(b), maxPEMSize)
	}
	var found []*x509.Certificate
	var body []byte   // of the open block
	n, inside := 0, 0 // the line, and that on which the block began, 0 for none
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		n++
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch text := string(line); {
		case inside != 0 && text == certificateEnd:
			c, err := parseCertificateBody(body)
			if err != nil {
				return nil, badLine(inside, err)
			}
			found, inside, body = append(found, c), 0, nil
		case inside != 0:
			body = append(body, line...)
		case text == certificateBegin:
			inside = n
		case text != "" && text[0] != '#':
			return nil, badLine(n, errors.New("something other than a CERTIFICATE block, an empty line or a line that begins with #"))
		}
	}
	switch {
	case inside != 0:
		return nil, badLine(inside, errors.New("a block that does not end"))
	case len(found) == 0:
		return nil, errors.New("tpmcert: certificates in PEM: none")
	}
	return found, nil
}

func badLine(n int, err error) error {
	return fmt.Errorf("tpmcert: certificates in PEM: line %d: %w", n, err)
}

// parseCertificateBody parses the joined lines of one block.
func parseCertificateBody(body []byte) (*x509.Certificate, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(string(body))
	if err != nil || bytes.ContainsRune(body, '\r') { // the decoder skips CR
		return nil, errors.New("a block with something other than base64")
	}
	if len(raw) > der.MaxCertificateSize {
		return nil, errors.New("a certificate of " + strconv.Itoa(len(raw)) + " bytes, at most " + strconv.Itoa(der.MaxCertificateSize))
	}
	return x509.ParseCertificate(raw)
}

// CertificatesDER returns the DER of each certificate, the form in which tpm.ProverOptions
// takes a chain.
func CertificatesDER(certificates []*x509.Certificate) [][]byte {
	der := make([][]byte, 0, len(certificates))
	for _, c := range certificates {
		der = append(der, bytes.Clone(c.Raw))
	}
	return der
}
