package tpmwire

import (
	"crypto"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"

	"github.com/google/go-tpm/tpm2"
)

// HashOf returns the hash of an algorithm identifier, 0 for one that the SDK
// does not compute.
func HashOf(alg tpm2.TPMAlgID) crypto.Hash {
	switch alg {
	case tpm2.TPMAlgSHA1:
		return crypto.SHA1
	case tpm2.TPMAlgSHA256:
		return crypto.SHA256
	case tpm2.TPMAlgSHA384:
		return crypto.SHA384
	case tpm2.TPMAlgSHA512:
		return crypto.SHA512
	}
	return 0
}

// AppendDigest appends the digest of message. It calls the one-shot functions, which
// allocate nothing.
func AppendDigest(out []byte, h crypto.Hash, message []byte) []byte {
	switch h {
	case crypto.SHA1:
		d := sha1.Sum(message)
		return append(out, d[:]...)
	case crypto.SHA256:
		d := sha256.Sum256(message)
		return append(out, d[:]...)
	case crypto.SHA384:
		d := sha512.Sum384(message)
		return append(out, d[:]...)
	case crypto.SHA512:
		d := sha512.Sum512(message)
		return append(out, d[:]...)
	}
	return out
}
