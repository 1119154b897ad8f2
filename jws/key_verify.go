package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
)

// Verify checks the signature of a parsed token. The header must name the key's own
// algorithm, and its key ID or none.
//
// The errors are [CheckForm] for a zero token, [CheckKey] for a zero key,
// [CheckAlgorithm], [CheckKeyID], [CheckSignatureSize] and [CheckSignature].
func (k *Key) Verify(token *Token) error {
	t := token.read()
	switch {
	case k == nil || k.public == nil:
		return &Error{Check: CheckKey, Got: "no key"}
	case t.algorithm == "":
		return &Error{Check: CheckForm, Got: "no token"}
	case t.algorithm != k.algorithm:
		return &Error{Check: CheckAlgorithm, Got: string(t.algorithm), Want: string(k.algorithm)}
	case t.keyID != "" && t.keyID != k.keyID:
		return &Error{Check: CheckKeyID, Got: t.keyID, Want: k.keyID}
	}
	return k.verify(t.signed, t.signature)
}

// verify checks a signature over the bytes of header and payload.
func (k *Key) verify(signed, signature []byte) error {
	want := k.signatureSize()
	if len(signature) != want {
		return &Error{Check: CheckSignatureSize, Got: bytesText(len(signature)), Want: bytesText(want)}
	}
	ok := false
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		ok = k.verifyRSA(public, signed, signature)
	case *ecdsa.PublicKey:
		var sum [sha512.Size]byte
		var der [maxDERSignature]byte
		ok = ecdsa.VerifyASN1(public, digest(sum[:0], k.algorithm.hash(), signed), appendDER(der[:0], signature))
	case ed25519.PublicKey:
		ok = ed25519.Verify(public, signed, signature)
	}
	if !ok {
		return &Error{Check: CheckSignature, Got: "a signature over other bytes or with another key", Want: "that of " + k.keyID}
	}
	return nil
}

func (k *Key) verifyRSA(public *rsa.PublicKey, signed, signature []byte) bool {
	var sum [sha512.Size]byte
	hash := k.algorithm.hash()
	hashed := digest(sum[:0], hash, signed)
	if k.algorithm.pss() {
		return rsa.VerifyPSS(public, hash, hashed, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
	}
	return rsa.VerifyPKCS1v15(public, hash, hashed, signature) == nil
}

// pss reports whether the algorithm of an RSA key is RSASSA-PSS.
func (a Algorithm) pss() bool { return a == PS256 || a == PS384 || a == PS512 }

// signatureSize is the length in bytes of the key's signatures (RFC 7518, sections 3.3
// to 3.5; RFC 8037, section 3.1).
func (k *Key) signatureSize() int {
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return public.Size()
	case *ecdsa.PublicKey:
		return 2 * coordinateSize(public.Curve)
	}
	return ed25519.SignatureSize
}

// digest appends the digest of data.
func digest(b []byte, hash crypto.Hash, data []byte) []byte {
	switch hash {
	case crypto.SHA256:
		sum := sha256.Sum256(data)
		return append(b, sum[:]...)
	case crypto.SHA384:
		sum := sha512.Sum384(data)
		return append(b, sum[:]...)
	case crypto.SHA512:
		sum := sha512.Sum512(data)
		return append(b, sum[:]...)
	}
	return b
}

// maxDERSignature is the length of the longest ECDSA signature in DER: on P-521 a
// SEQUENCE of two INTEGERs of 66 bytes, whose first bit is never set.
const maxDERSignature = 3 + 2*(2+66)

// appendDER appends the DER form of an ECDSA signature whose halves are r and s (RFC
// 3279, section 2.2.3).
func appendDER(b, signature []byte) []byte {
	var content [maxDERSignature]byte
	half := len(signature) / 2
	numbers := appendInteger(appendInteger(content[:0], signature[:half]), signature[half:])
	b = append(b, 0x30)
	if len(numbers) > 127 {
		b = append(b, 0x81)
	}
	return append(append(b, byte(len(numbers))), numbers...)
}

// appendInteger appends the INTEGER of a number of less than 127 bytes, which is positive:
// one zero byte is before its first bit if that is set, and none else.
func appendInteger(b, number []byte) []byte {
	start := len(b) + 2
	b = append(append(b, 0x02, 0, 0), number...)
	content := b[start:]
	for len(content) > 1 && content[0] == 0 && content[1] < 0x80 {
		content = content[1:]
	}
	b[start-1] = byte(len(content))
	return append(b[:start], content...)
}
