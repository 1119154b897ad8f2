package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"fmt"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// maxRSABits bounds the keys that this program computes with.
const maxRSABits = 8192

// showKeyInfo reads a SubjectPublicKeyInfo: RFC 5280, 4.1.2.7.
func showKeyInfo(r *reader) {
	var id oid.OID
	r.strictly(func() {
		r.enter("SubjectPublicKeyInfo", asn1.SEQUENCE, func(in *reader, _ []byte) {
			id = in.algorithm("algorithm")
			if bits := in.bits("subjectPublicKey"); bits != nil {
				in.t.line("subjectPublicKey", sizeOf(len(bits.b)))
			}
		})
	}, func(raw []byte) error {
		key, err := x509.ParsePKIXPublicKey(raw)
		if err != nil && (id == oid.RSAEncryption || id == oid.ECPublicKey || id == oid.Ed25519) {
			return err
		}
		if err != nil {
			r.t.line("key", "of a kind that Go does not read")
			return nil
		}
		r.t.showKey(key)
		if canonical, err := csr.CanonicalSPKI(key); err == nil && string(canonical) != string(raw) {
			r.t.line("encoding", "NOT the canonical one, over which the digest is")
		}
		return nil
	})
}

// showKey writes what a key is, and the digest that stands for it in identities.
func (t *tree) showKey(key crypto.PublicKey) {
	kind := ""
	switch key := key.(type) {
	case *rsa.PublicKey:
		kind = fmt.Sprintf("RSA, %d bits, exponent %d", key.N.BitLen(), key.E)
	case *ecdsa.PublicKey:
		kind = "ECDSA, " + key.Curve.Params().Name
	case ed25519.PublicKey:
		kind = "Ed25519"
	default:
		kind = fmt.Sprintf("%T", key)
	}
	t.line("key", kind)
	if hash, err := csr.SPKIHash(key); err == nil {
		t.line("key digest", fmt.Sprintf("sha256:%x", hash))
	}
}

// computable reports whether a signature under the key takes little time to verify.
func computable(key crypto.PublicKey) bool {
	k, ok := key.(*rsa.PublicKey)
	return !ok || k.N.BitLen() <= maxRSABits
}
