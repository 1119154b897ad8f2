package jws

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strconv"
	"strings"
)

// ParsePEM reads public keys from one or more PEM blocks of type PUBLIC KEY (RFC 7468, section
// 13), at most [MaxJWKSKeys], as [NewKey] accepts them without options. Only white space may
// surround the blocks, which must have no headers and be encoded as the RFC's generators do
// it; the DER inside must be what crypto/x509 writes, so that the derived key ID is the same
// everywhere.
//
// The errors are "pem", "private-key" for a block of a private key, "key-set" for a
// key that appears twice, and those of NewKey.
func ParsePEM(data []byte) ([]*Key, error) {
	if len(data) > MaxPEMSize {
		return nil, &Error{Check: checkPEM, Got: bytesText(len(data)), Want: "at most " + bytesText(MaxPEMSize)}
	}
	var keys []*Key
	for rest := bytes.TrimSpace(data); len(rest) > 0 || keys == nil; {
		if len(keys) == MaxJWKSKeys {
			return nil, &Error{Check: checkPEM, Got: "more keys", Want: "at most " + strconv.Itoa(MaxJWKSKeys)}
		}
		block, after := pem.Decode(rest)
		if block == nil {
			return nil, &Error{Check: checkPEM, Got: "no PEM block", Want: "PUBLIC KEY"}
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return nil, &Error{Check: checkPrivate, Got: block.Type, Want: "PUBLIC KEY"}
		}
		if block.Type != "PUBLIC KEY" {
			return nil, &Error{Check: checkPEM, Got: block.Type, Want: "PUBLIC KEY"}
		}
		text := bytes.TrimSpace(rest[:len(rest)-len(after)])
		if !bytes.Equal(text, bytes.TrimSpace(pem.EncodeToMemory(block))) || len(block.Headers) > 0 {
			return nil, &Error{Check: checkPEM, Got: "other text, a header or another encoding around block " + strconv.Itoa(len(keys)+1), Want: "PEM blocks alone"}
		}
		k, err := parsePKIX(block.Bytes)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
		rest = bytes.TrimSpace(after)
	}
	if err := checkDistinct(keys); err != nil {
		return nil, err
	}
	return keys, nil
}

// parsePKIX reads a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7) in its only encoding.
func parsePKIX(der []byte) (*Key, error) {
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, &Error{Check: checkPEM, Got: "DER that is no public key", Err: err}
	}
	k, err := NewKey(public, KeyOptions{})
	if err != nil {
		return nil, err
	}
	if again, err := x509.MarshalPKIXPublicKey(k.public); err != nil || !bytes.Equal(der, again) {
		return nil, &Error{Check: checkPEM, Got: "DER that is not canonical", Err: err}
	}
	return k, nil
}
