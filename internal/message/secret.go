package message

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Secret is S, the secret of one challenge, 32 bytes: HMAC-SHA256 under the key of the ring
// over "nodeattest/<format> secret", where format is the kind's name and version such as
// "tpm/v1", one zero byte and the DER of the Binding.
func Secret(ringKey []byte, format string, binding []byte) []byte {
	return QualifyingData(ringKey, format, "secret", binding)
}

// QualifyingData is the value that a statement must cover, 32 bytes: HMAC-SHA256 under S over
// "nodeattest/<format> <label>", one zero byte and the DER of the Binding. A TPM's
// labels are "certify" and "quote", a document's is "document".
func QualifyingData(secret []byte, format, label string, binding []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("nodeattest/" + format + " " + label + "\x00"))
	m.Write(binding)
	return m.Sum(nil)
}
