// Package caissuers reads the certificates at the URL that a certificate names for its issuer
// (authority information access, caIssuers: RFC 5280, 4.2.2.1).
package caissuers

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

const (
	// MaxSize bounds the data, in bytes.
	MaxSize = 64 << 10
	// maxCertificates bounds the certificates in the data.
	maxCertificates = 16
	// maxDepth bounds elements of indefinite length inside each other.
	maxDepth = 8
)

const (
	context0 = 0xa0 // [0], constructed
	context1 = 0xa1 // [1], constructed
)

// signedData is id-signedData, 1.2.840.113549.1.7.2.
var signedData = []byte("\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02")

var (
	errForm = errors.New("neither a certificate in DER or PEM nor a certs-only PKCS#7 message")
	errCMS  = errors.New("a PKCS#7 message that is not certs-only, or cannot be read")
	errNone = errors.New("no certificate in the PEM or PKCS#7")
)

// Certificates returns the certificates in data, each the DER of one SEQUENCE that is not
// parsed. data is a certificate in DER, or a certs-only message of CMS
// (PKCS#7) in BER or DER, the two forms of RFC 5280; or either in PEM, which some CAs serve.
// White space may follow. There are 1 to 16.
func Certificates(data []byte) (all [][]byte, err error) {
	switch {
	case len(data) > MaxSize:
		return nil, errors.New(strconv.Itoa(len(data)) + " bytes, want at most " + strconv.Itoa(MaxSize))
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("nothing, want a certificate in DER or PEM, or a certs-only PKCS#7 message")
	case data[0] != byte(asn1.SEQUENCE):
		all, err = inPEM(data)
	default:
		all, err = inDER(data)
	}
	if len(all) > maxCertificates {
		return nil, errors.New("more than " + strconv.Itoa(maxCertificates) + " certificates")
	}
	return all, err
}

// inPEM reads blocks, and skips text between them and blocks of other types.
func inPEM(data []byte) (all [][]byte, err error) {
	blocks := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		switch block.Type {
		case "CERTIFICATE", "PKCS7", "CMS":
			found, err := inDER(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("PEM: %w", err)
			}
			all = append(all, found...)
		}
	}
	switch {
	case blocks == 0:
		return nil, errors.New("a web page or other text, want a certificate in DER or PEM, or a certs-only PKCS#7 message")
	case len(all) == 0:
		return nil, errNone
	}
	return all, nil
}

// inDER reads a certificate or a ContentInfo. The first begins with a SEQUENCE, the second
// with an identifier.
func inDER(data []byte) ([][]byte, error) {
	if in, outer := cryptobyte.String(data), cryptobyte.String(nil); in.ReadASN1Element(&outer, asn1.SEQUENCE) {
		if body := outer; body.ReadASN1(&body, asn1.SEQUENCE) && body.PeekASN1Tag(asn1.SEQUENCE) {
			if len(bytes.TrimSpace(in)) != 0 {
				return nil, errors.New("a certificate with " + strconv.Itoa(len(in)) + " bytes behind it")
			}
			return [][]byte{outer}, nil
		}
	}
	return certsOnly(data)
}

// certsOnly reads a ContentInfo with a SignedData without signatures (RFC 5652, 5.1): version,
// digestAlgorithms, encapContentInfo, certificates, crls and an empty signerInfos.
func certsOnly(data []byte) ([][]byte, error) {
	info, rest, ok := read(data, asn1.SEQUENCE)
	if !ok {
		return nil, errForm
	}
	id, wrapped, ok := read(info, asn1.OBJECT_IDENTIFIER)
	switch {
	case !ok:
		return nil, errForm
	case !bytes.Equal(id, signedData) || len(bytes.TrimSpace(rest)) != 0:
		return nil, errCMS
	}
	wrapped, end, ok1 := read(wrapped, context0)
	body, end2, ok2 := read(wrapped, asn1.SEQUENCE)
	_, body, ok3 := read(body, asn1.INTEGER)
	_, body, ok4 := read(body, asn1.SET)
	_, body, ok5 := read(body, asn1.SEQUENCE)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || len(end)+len(end2) != 0 {
		return nil, errCMS
	}
	certificates, body, ok := read(body, context0)
	if !ok {
		return nil, errNone
	}
	if _, after, ok := read(body, context1); ok {
		body = after
	}
	if signers, after, ok := read(body, asn1.SET); !ok || len(signers)+len(after) != 0 {
		return nil, errCMS
	}
	return certificatesOf(certificates)
}

// certificatesOf splits a CertificateSet. Elements other than X.509 certificates have other tags.
func certificatesOf(set []byte) (all [][]byte, err error) {
	for len(set) > 0 {
		_, rest, ok := element(set, maxDepth)
		if !ok {
			return nil, errCMS
		}
		if set[0] == byte(asn1.SEQUENCE) {
			all = append(all, set[:len(set)-len(rest)])
		}
		set = rest
	}
	if len(all) == 0 {
		return nil, errNone
	}
	return all, nil
}

// read reads an element with that tag.
func read(in []byte, tag asn1.Tag) (content, rest []byte, ok bool) {
	if len(in) == 0 || in[0] != byte(tag) {
		return nil, in, false
	}
	return element(in, maxDepth)
}

// element reads one element of BER, with a tag of one byte. The content of one of indefinite
// length ends before two zero bytes, which take the place of an element.
func element(in []byte, depth int) (content, rest []byte, ok bool) {
	if len(in) < 2 || in[0]&0x1f == 0x1f || depth == 0 {
		return nil, in, false
	}
	length, rest := int(in[1]), in[2:]
	switch {
	case length == 0x80 && in[0]&0x20 != 0:
		return indefinite(rest, depth)
	case length > 0x84 || length == 0x80 || length > 0x80 && len(rest) < length-0x80:
		return nil, in, false
	case length > 0x80:
		number := rest[:length-0x80]
		rest, length = rest[len(number):], 0
		for _, b := range number {
			length = length<<8 | int(b)
		}
	}
	if length < 0 || length > len(rest) { // 32 bits may be less than zero
		return nil, in, false
	}
	return rest[:length], rest[length:], true
}

func indefinite(in []byte, depth int) (content, rest []byte, ok bool) {
	for rest = in; len(rest) >= 2; {
		if rest[0] == 0 && rest[1] == 0 {
			return in[:len(in)-len(rest)], rest[2:], true
		}
		if _, rest, ok = element(rest, depth-1); !ok {
			break
		}
	}
	return nil, in, false
}
