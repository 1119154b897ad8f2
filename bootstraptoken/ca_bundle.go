package bootstraptoken

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strconv"
	"strings"
)

// The limits of a CA bundle.
const (
	// MaxCAs is how many certificates a bundle may have.
	MaxCAs = 64
	// MaxCABundleSize is the size in bytes of the largest bundle, PEM.
	MaxCABundleSize = 160 << 10
)

// CheckCA: the CA bundle is not one to [MaxCAs] different CA certificates in PEM.
const CheckCA Check = "ca-bundle"

const (
	pemBegin    = "-----BEGIN "
	pemType     = "CERTIFICATE"
	wantCA      = "CA certificates in PEM"
	pemMaxLabel = 40
)

// ParseCAs reads a CA bundle: one to [MaxCAs] PEM blocks of the type CERTIFICATE without
// headers, each a CA certificate (basicConstraints with CA, and keyCertSign if there is
// a keyUsage), none twice. Text in front of a block, such as OpenSSL writes, is passed
// over (RFC 7468, section 5.2), but nothing that looks like a block is: where Kubernetes
// leaves out blocks of other types (k8s.io/client-go/util/cert, ParseCertsPEM), a private
// key for example, they are refused here. The error is [CheckCA].
//
// Certificates are not looked at in time: an expired one is read, and verifies nothing.
func ParseCAs(bundle []byte) ([]*x509.Certificate, error) {
	if len(bundle) == 0 || len(bundle) > MaxCABundleSize {
		return nil, caError(strconv.Itoa(len(bundle))+" bytes", nil)
	}
	var cas []*x509.Certificate
	for rest := bundle; ; {
		start := bytes.Index(rest, []byte(pemBegin))
		if start < 0 {
			if bytes.Contains(rest, []byte("-----")) {
				return nil, caError("what is left of a block at the end", nil)
			}
			break
		}
		if bytes.Contains(rest[:start], []byte("-----")) {
			return nil, caError("what is left of a block in front of block "+strconv.Itoa(len(cas)+1), nil)
		}
		ca, left, err := parseCA(rest[start:])
		if err != nil {
			return nil, err
		}
		if len(cas) == MaxCAs {
			return nil, caError("more than "+strconv.Itoa(MaxCAs)+" certificates", nil)
		}
		for _, other := range cas {
			if ca.Equal(other) {
				return nil, caError("the certificate of "+strconv.Quote(ca.Subject.String())+" twice", nil)
			}
		}
		cas, rest = append(cas, ca), left
	}
	if len(cas) == 0 {
		return nil, caError("no certificate", nil)
	}
	return cas, nil
}

// parseCA reads the block at the beginning of data and returns what is behind it.
func parseCA(data []byte) (*x509.Certificate, []byte, error) {
	label, _, _ := bytes.Cut(data[len(pemBegin):], []byte("-----"))
	if string(label) != pemType {
		return nil, nil, caError("a block "+strconv.QuoteToASCII(string(label[:min(len(label), pemMaxLabel)])), nil)
	}
	block, rest := pem.Decode(data)
	if block == nil || bytes.Count(data[:len(data)-len(rest)], []byte(pemBegin)) != 1 {
		return nil, nil, caError("a malformed block", nil)
	}
	if len(block.Headers) != 0 {
		return nil, nil, caError("a block with headers", nil)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, caError("a malformed certificate", err)
	}
	if err := checkCA(cert); err != nil {
		return nil, nil, err
	}
	return cert, rest, nil
}

func checkCA(cert *x509.Certificate) error {
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return caError("the certificate of "+strconv.Quote(cert.Subject.String())+", which is no CA", nil)
	}
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return caError("the certificate of "+strconv.Quote(cert.Subject.String())+", which may not sign certificates", nil)
	}
	return nil
}

func caError(got string, err error) error {
	return &Error{Check: CheckCA, Got: got, Want: wantCA, Err: err}
}

// marshalCAs writes a bundle that [ParseCAs] reads.
func marshalCAs(cas []*x509.Certificate) ([]byte, error) {
	if len(cas) > MaxCAs {
		return nil, caError(strconv.Itoa(len(cas))+" certificates", nil)
	}
	var b strings.Builder
	for i, ca := range cas {
		if ca == nil || len(ca.Raw) == 0 {
			return nil, caError("certificate "+strconv.Itoa(i)+" without its DER", nil)
		}
		if err := checkCA(ca); err != nil {
			return nil, err
		}
		for _, other := range cas[:i] {
			if ca.Equal(other) {
				return nil, caError("the certificate of "+strconv.Quote(ca.Subject.String())+" twice", nil)
			}
		}
		if err := pem.Encode(&b, &pem.Block{Type: pemType, Bytes: ca.Raw}); err != nil {
			return nil, caError("", err)
		}
	}
	if b.Len() > MaxCABundleSize {
		return nil, caError(strconv.Itoa(b.Len())+" bytes", nil)
	}
	return []byte(b.String()), nil
}
