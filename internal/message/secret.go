package message

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Secret is S, the secret of one challenge, 32 bytes: HMAC-SHA256 under the key of the ring
// over "nodeattest/<provider>/v1 secret", one zero byte and the DER of the Binding.
func Secret(ringKey []byte, provider string, binding []byte) []byte {
	return labelled(ringKey, provider, "secret", binding)
}

// QualifyingData is what a statement must cover, 32 bytes: HMAC-SHA256 under S over
// "nodeattest/<provider>/v1 <label>", one zero byte and the DER of the Binding. A TPM's
// labels are "certify" and "quote", a document's is "document".
func QualifyingData(secret []byte, provider, label string, binding []byte) []byte {
	return labelled(secret, provider, label, binding)
}

func labelled(key []byte, provider, label string, binding []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("nodeattest/" + provider + "/v1 " + label + "\x00"))
	m.Write(binding)
	return m.Sum(nil)
}
