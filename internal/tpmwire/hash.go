package tpmwire

import (
	"crypto"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
)

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
